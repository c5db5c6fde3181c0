"""``srun`` in a job with the launcher ``slurm``: starts a step's tasks in the learners, and waits for their end."""

from __future__ import annotations

import os
import shlex
import signal
import stat
import sys
import threading
from base64 import b64encode
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, NamedTuple, NoReturn

from weft_trainer.launchers.slurm_gang import Connection, Gang, Message, NodeUnreachable
from weft_trainer.launchers.slurm_options import Layout, OptionError, StepOptions, lay_out, parse_options
from weft_trainer.launchers.slurm_tasks import FOLDERS
from weft_trainer.words import describe_exit

_FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
_ENDED = (-signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGKILL)
"""How tasks end that ``srun`` itself ends. They don't count, so that its exit code is that of the task that failed."""


class _Answer(NamedTuple):
    """An answer of a node; None: the node has closed the connection."""

    node: int
    message: Message | None


class Srun:
    """A step.

    Args:
        base: the environment with which this learner's node started.
    """

    def __init__(self, gang: Gang, options: StepOptions, layout: Layout, base: Mapping[str, str], step: int) -> None:
        self._gang = gang
        self._options = options
        self._layout = layout
        self._base = base
        self._step = step
        self._news: SimpleQueue[_Answer | signal.Signals] = SimpleQueue()
        self._stopped = False
        self._ending = False
        self._connections: list[Connection] = []
        self._code = 0

    def run(self) -> int:
        """Returns the highest exit code of the tasks. Raises: NodeUnreachable."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        threading.Thread(target=self._await_signals, daemon=True).start()
        stdin = _standard_input()
        for node, rank in enumerate(self._layout.ranks):
            connection = self._gang.ask(rank, self._request(node, stdin), lambda: self._stopped)
            self._connections.append(connection)
            threading.Thread(target=self._listen, args=(node, connection), daemon=True).start()
        left = [set(self._numbers(node)) for node in range(len(self._layout.ranks))]
        while any(left):
            news = self._news.get()
            if isinstance(news, signal.Signals):
                self._send({"signal": int(news)})
            elif news.message is not None:
                left[news.node].discard(news.message["task"])
                self._note_end(news.node, news.message)
            elif left[news.node]:
                _complain(f"{self._where(news.node)} has closed the connection")
                left[news.node].clear()
                self._fail(1)
        for connection in self._connections:
            connection.close()
        return self._code

    def _note_end(self, node: int, message: Message) -> None:
        code = message["code"]
        if code and not (self._ending and code in _ENDED):
            how = message.get("reason") or describe_exit(code)
            _complain(f"{self._where(node)}, task {message['task']}: {how}")
            self._fail(code if code > 0 else 128 - code, self._options.number("kill-on-bad-exit", 0) or 0)

    def _fail(self, code: int, end: int = 1) -> None:
        self._code = max(self._code, code)
        if end:
            self._ending = True
            self._send({"end": True})

    def _send(self, message: Message) -> None:
        for connection in self._connections:
            try:
                connection.send(message)
            except (OSError, ValueError):
                continue  # its listener says so

    def _listen(self, node: int, connection: Connection) -> None:
        try:
            for message in connection:
                self._news.put(_Answer(node, message))
        except (OSError, ValueError):
            pass
        self._news.put(_Answer(node, None))

    def _await_signals(self) -> NoReturn:
        """Forward signals to the tasks. The agent's stop reaches the tasks of each learner without this."""
        while True:
            found = signal.sigwaitinfo(_FORWARDED)
            self._stopped = self._stopped or found.si_signo in (signal.SIGINT, signal.SIGTERM)
            if found.si_pid != self._gang.agent:
                self._news.put(signal.Signals(found.si_signo))

    def _where(self, node: int) -> str:
        return self._gang.describe(self._layout.ranks[node])

    def _numbers(self, node: int) -> range:
        first = self._layout.first(node)
        return range(first, first + self._layout.counts[node])

    def _request(self, node: int, stdin: str) -> dict[str, Any]:
        values, numbers = self._options.values, self._numbers(node)
        shared = values.get("gpu-bind") != "none"
        environment = self._layout.environment(self._step, self._gang.names[self._gang.rank])
        if "cpus-per-task" in values:
            environment["SLURM_CPUS_PER_TASK"] = str(self._options.number("cpus-per-task"))
        if "job-name" in values:
            environment["SLURM_JOB_NAME"] = values["job-name"]
        return {
            "what": "run",
            "argv": self._options.command,
            "chdir": os.path.abspath(values.get("chdir", "")),
            "folders": {name: _spellings(self._base[name]) for name in FOLDERS if name in self._base},
            "changes": exported(values.get("export", "ALL"), self._base, os.environ),
            "environment": environment,
            "tasks": [
                {
                    "number": number,
                    "environment": {
                        "SLURM_PROCID": str(number),
                        "SLURM_LOCALID": str(local),
                        "SLURM_NODEID": str(node),
                        "SLURM_GTIDS": ",".join(map(str, numbers)),
                    },
                }
                for local, number in enumerate(numbers)
            ],
            "label": values.get("label", "0") != "0",
            "output": _file(values, "output"),
            "error": _file(values, "error"),
            "append": values.get("open-mode") == "append",
            "input": stdin,
            "gpus": self._options.number("gpus-per-task", 0) if shared else None,
        }


def exported(export: str, base: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    """The variables that the tasks have other than their learner's own; None: it is removed.

    Args:
        export: the option's value: ``ALL``, ``NONE``, or names and assignments, perhaps with ``ALL`` among them.
        base: the environment of this learner.
        now: the environment of ``srun``.
    """
    changes: dict[str, str | None] = {}
    words = [word.strip() for word in export.split(",")]
    if "ALL" in words:
        changes |= {name: None for name in base if name not in now}
        changes |= {name: value for name, value in now.items() if base.get(name) != value}
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            changes[name] = value
        elif name not in ("ALL", "NONE") and base.get(name) != now.get(name):
            changes[name] = now.get(name)
    return changes


def _file(values: Mapping[str, str], stream: str) -> str | None:
    value = values.get(stream, "all")
    if value.isdecimal():
        raise OptionError(f"--{stream}: expected a file, all or none, found {value!r}")
    return None if value == "all" else value


def _spellings(path: str) -> list[str]:
    return sorted({path, os.path.realpath(path)})


def _standard_input() -> str:
    """All of it, for the tasks. In a batch script it is empty, unless the script redirects it."""
    try:
        found = os.fstat(0)
    except OSError:
        return ""
    if stat.S_ISCHR(found.st_mode):
        return ""
    return b64encode(sys.stdin.buffer.read()).decode()


def _complain(text: str) -> None:
    print(f"srun: error: {text}", file=sys.stderr, flush=True)


def srun(words: list[str]) -> int:
    """The exit code."""
    try:
        gang = Gang.from_environment()
    except KeyError:
        _complain("this is no task and no batch script of a job with the launcher slurm")
        return 1
    try:
        options = parse_options(words, os.environ)
        layout = lay_out(options, gang)
        if "input" in options.values and options.values["input"] not in ("all", "none"):
            os.dup2(os.open(options.values["input"], os.O_RDONLY), 0)
        elif options.values.get("input") == "none":
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for option in options.ineffective:
            print(f"srun: {option} has no effect on Weft", file=sys.stderr, flush=True)
        own = gang.ask(gang.rank, {"what": "environment"}).only()
        return Srun(gang, options, layout, own["environment"], own["step"]).run()
    except OptionError as error:
        _complain(f"{error} (srun {shlex.join(words)})")
    except NodeUnreachable as error:
        _complain(str(error))
    except OSError as error:
        _complain(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
    return 1


def main(words: list[str]) -> None:
    sys.exit(srun(words))
