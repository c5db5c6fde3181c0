"""``python -m weft_trainer.launchers.slurm_node [COMMAND]``: the node of a learner, which starts tasks for ``srun``.

With COMMAND, on learner 1: run it, and inform the other nodes when it has ended well. Without: serve until then. If the
command fails, learner 1 fails and reports the reason, and the stop that follows ends the other learners.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import json
import os
import shlex
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from weft_trainer.config import RUNTIME
from weft_trainer.launchers.base import end_like, shell
from weft_trainer.launchers.slurm_gang import Gang, Message, NodeUnreachable
from weft_trainer.launchers.slurm_tasks import Step
from weft_trainer.program.endings import STOPPED_CODE

_LONGEST_SECRET = 4096
_PROGRAMS = ("srun", "scontrol")
_STOP, _END, _TASKS = "stop", "end", "tasks"


class Node:
    """Serves requests (see :mod:`.slurm_gang`). Raises: OSError: its port is taken.

    Attributes:
        news: gets an item for each event that ``serve`` waits for.
    """

    def __init__(self, gang: Gang) -> None:
        self._gang = gang
        self._environment = dict(os.environ)
        self._steps = itertools.count()
        self._busy = 0
        self._lock = threading.Lock()
        self.news: SimpleQueue[str] = SimpleQueue()
        self.stopping = False
        signal.signal(signal.SIGTERM, self._stop)
        self._server = _Server(("0.0.0.0", gang.nodes[gang.rank][1]), _Handler)  # noqa: S104
        self._server.node = self
        self.secret = gang.secret.encode()
        threading.Thread(target=self._server.serve_forever, name="node", daemon=True).start()

    def run(self, command: str) -> int:
        """Run the batch script: its exit code; negative: killed by that signal."""
        script = subprocess.Popen(shell(command))
        code = script.wait()
        if self.stopping:
            self._until(lambda: not self._busy)  # tasks may save something; their output comes through this process
        elif code == 0:
            for rank in range(len(self._gang.nodes)):
                if rank != self._gang.rank:
                    self._tell_end(rank)
        return code

    def _tell_end(self, rank: int) -> None:
        # A node that is gone has failed with its learner, which reports why.
        with contextlib.suppress(NodeUnreachable, OSError):
            self._gang.ask(rank, {"what": "end"}, lambda: self.stopping).only()

    def serve(self) -> int:
        """Serve until the batch script has ended, or a stop: the exit code of this process."""
        ended = self._until(lambda: not self._busy)
        return 0 if ended == _END else STOPPED_CODE

    def _until(self, idle: Callable[[], bool]) -> str:
        """Until the end of the batch script, or until a stop has come and no task is left. Returns which of them."""
        while not (self.stopping and idle()):
            if self.news.get() == _END:
                return _END
        return _STOP

    def _stop(self, *_: object) -> None:
        self.stopping = True
        self.news.put(_STOP)

    def answer(self, request: Message, connection: Iterator[bytes], reply: Callable[[Message], None]) -> None:
        if request["what"] == "environment":
            reply({"environment": self._environment, "step": next(self._steps)})
        elif request["what"] == "end":
            reply({})
            self.news.put(_END)
        else:
            with self._working():
                self._run(Step(request, self._environment, reply), connection)

    @staticmethod
    def _run(step: Step, connection: Iterator[bytes]) -> None:
        step.start()
        with contextlib.suppress(OSError):
            for line in connection:
                order = json.loads(line)
                if "signal" in order:
                    step.signal(order["signal"])
                else:
                    threading.Thread(target=step.end, daemon=True).start()
        step.end()  # srun has ended; its tasks have, too, unless it was killed

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        with self._lock:
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1
            self.news.put(_TASKS)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    node: Node


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        node = self.server.node
        if not hmac.compare_digest(self.rfile.readline(_LONGEST_SECRET).strip(), node.secret):
            return
        request = self.rfile.readline()
        if request:
            node.answer(json.loads(request), iter(self.rfile), _Replies(self.wfile.write).send)


class _Replies:
    """Answers of several threads, each on a line of its own."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):  # srun was killed
            self._write(json.dumps(message).encode() + b"\n")


def offer_programs(folder: Path) -> None:
    """Put ``srun`` and ``scontrol`` into a folder of the PATH. They run in the agent's Python, whatever the user's
    programs do to PYTHONPATH or to the environment."""
    for name in _PROGRAMS:
        code = (
            f"import sys; sys.path.insert(0, {str(RUNTIME)!r}); "
            f"from weft_trainer.launchers.slurm_{name} import main; main(sys.argv[1:])"
        )
        program = folder / name
        program.unlink(missing_ok=True)  # it may be a link, to a file that is not ours
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -c {shlex.quote(code)} "$@"\n')
        program.chmod(0o755)


def prepare(gang: Gang) -> Gang:
    """Complete the environment with the values that only this learner knows: its folders and its agent."""
    venv = Path(os.environ["VIRTUAL_ENV"])
    offer_programs(venv / "bin")
    temporary = venv.with_name("slurm-tmp")
    temporary.mkdir(exist_ok=True)
    here = replace(gang, agent=os.getppid())
    os.environ.update({"SLURM_SUBMIT_DIR": os.getcwd(), "SLURM_TMPDIR": str(temporary), **here.variable})
    return here


def main(arguments: list[str]) -> None:
    node = Node(prepare(Gang.from_environment()))
    end_like(node.run(arguments[0]) if arguments else node.serve())


if __name__ == "__main__":
    main(sys.argv[1:])
