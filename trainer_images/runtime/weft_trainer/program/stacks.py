"""The places in the code where the program's processes are just now: Python stacks by py-spy, or the state in /proc.

py-spy reads a process from outside, so that it needs no help of a program that hangs. The kernel has to allow that
(ptrace). On most machines a process may read others of its user; where Yama's ``ptrace_scope`` is 1, only its ancestors
may, and processes that it has named: the agent's children name the agent (see ``machine.prctl.tracing_consent``), whose
descendant py-spy is. Processes that these start are then out of reach, as are all in a container that forbids ptrace.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from weft_trainer.config import RUNTIME
from weft_trainer.program import collectives, flight_recorder, profiling
from weft_trainer.program.questions import ask

OWN_THREADS = (collectives.THREAD, profiling.THREAD)
"""Weft's own, in the program's processes."""
_MOST_PROCESSES = 64
_MOST_LINES = 400
"""Lines for each process."""
_MOST_THREADS, _MOST_FRAMES = 6, 60
"""Of each process, in the report."""
_MOST_BYTES = 400_000
"""Of the report."""
_SECONDS = 20.0
_RECORDER_SECONDS = 5.0
_REFUSED = ("permission denied", "operation not permitted", "eperm", "eacces")
_LIBRARIES = re.compile(r".*/(site-packages|dist-packages)/|.*/lib(64)?/python3[^/]*/")
_WITHOUT_FILE = ("<string>", "<stdin>")
"""The user's code all the same: of `python -c`, and from standard input."""
_FOLDED = 4
"""Calls inside of libraries, in a row, from which on the log leaves out those in the middle."""
_RANKS = ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLDS = ("WORLD_SIZE", "HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


@dataclass(frozen=True)
class Snapshot:
    lines: list[str]
    """For the log."""
    report: dict[str, Any]
    """For the API (``weft_core.hangs.report``): the same, without what is of no use for a verdict."""


def take(ignore: Collection[int], recorders: Path, code: Path) -> Snapshot:
    """All processes below the agent but ``ignore``.

    Args:
        ignore: the agent's own.
        recorders: the folder in which processes show their flight recorders.
        code: the folder of the user's code.
    """
    found = [process for process in psutil.Process().children(recursive=True) if process.pid not in ignore]
    asked = ask(recorders)
    spy = find_py_spy()
    lines: list[str] = []
    processes: list[dict[str, Any]] = []
    if spy is None:
        lines.append("weft: there is no py-spy in this environment, so /proc has to do (pip install py-spy)")
    for process in found[:_MOST_PROCESSES]:
        try:
            words = " ".join(" ".join(process.cmdline()).split()) or process.name()
            lines.append(f"weft: process {process.pid} ({words[:200]}), {_state(process)}")
            entry: dict[str, Any] = {
                "pid": process.pid,
                "command": words[:200],
                "state": process.status(),
                **place_of(process),
            }
            if spy is not None and is_python(process):
                threads = _stacks(spy, process.pid, code)
                if isinstance(threads, str):
                    lines.append(f"weft:   {threads}")
                else:
                    lines += _told(threads)
                    entry["threads"] = _reported(threads)
            processes.append(entry)
        except psutil.NoSuchProcess:
            continue
        except psutil.Error as error:
            lines.append(f"weft: process {process.pid}: {error}")
    if len(found) > _MOST_PROCESSES:
        lines.append(f"weft: and {len(found) - _MOST_PROCESSES} more processes")
    answers = flight_recorder.answers(recorders, asked, _RECORDER_SECONDS)
    for entry in processes:
        if (answer := answers.get(entry["pid"])) is not None:
            rank = entry["rank"] if answer.get("rank") is None else answer["rank"]
            entry |= {**answer, "rank": rank, "recorded": "collectives" in answer}
    return Snapshot(lines, {"processes": _bounded(processes)})


def _bounded(processes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the stacks that are too many: those of the last processes, which others have started."""
    left = _MOST_BYTES
    for entry in processes:
        left -= len(json.dumps(entry))
        if left < 0:
            entry["threads"], entry["collectives"] = [], []
    return processes


def place_of(process: psutil.Process) -> dict[str, int | None]:
    """Its rank and the number of ranks, by its environment."""
    try:
        env = process.environ()
    except (psutil.Error, OSError):
        env = {}
    if "TF_CONFIG" in env:
        try:
            config = json.loads(env["TF_CONFIG"])
            return {"rank": int(config["task"]["index"]), "world": len(config["cluster"]["worker"])}
        except (ValueError, KeyError, TypeError):
            pass
    numbers = [
        next((env[name] for name in names if env.get(name, "").isdecimal()), None) for names in (_RANKS, _WORLDS)
    ]
    rank, world = (None if number is None else int(number) for number in numbers)
    return {"rank": rank, "world": world}


def find_py_spy() -> str | None:
    """Beside the agent (where the engine brings it), in its environment, or on the PATH."""
    for place in (RUNTIME / "weft_trainer" / "bin" / "py-spy", Path(sys.executable).parent / "py-spy"):
        if os.access(place, os.X_OK):
            return str(place)
    return shutil.which("py-spy")


def is_python(process: psutil.Process) -> bool:
    """Whether a process runs Python, as far as /proc tells."""
    try:
        names = [process.exe(), *(mapped.path for mapped in process.memory_maps(grouped=True))]
    except psutil.AccessDenied:
        return True  # py-spy says so in better words
    return any("python" in Path(name).name for name in names)


def _stacks(spy: str, pid: int, code: Path) -> list[dict[str, Any]] | str:
    """The threads of a process, the main thread first, then those that run the user's code; or why they are unknown."""
    try:
        # Without stopping it: its stack does not change.
        done = subprocess.run(
            [spy, "dump", "--nonblocking", "--json", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"py-spy does not run: {error}"
    if done.returncode != 0:
        said = " ".join(done.stderr.split()).removeprefix("Error: ")
        if any(word in said.lower() for word in _REFUSED):
            return f"its stack can't be read: ptrace is refused here ({said[:200]})"
        return f"its stack can't be read: {said[:300]}"
    try:
        threads = [
            {
                "id": thread.get("os_thread_id") or thread["thread_id"],
                "name": thread.get("thread_name") or "",
                "main": thread.get("os_thread_id") == pid or thread.get("thread_name") == "MainThread",
                "active": bool(thread.get("active")),
                "frames": [_frame(frame, code) for frame in thread["frames"]],
            }
            for thread in json.loads(done.stdout)
            if thread.get("thread_name") not in OWN_THREADS
        ]
    except (ValueError, KeyError, TypeError) as error:
        return f"its stack can't be read: py-spy's answer has another form than expected ({error!r})"
    return sorted(threads, key=lambda thread: (not thread["main"], not _runs_own_code(thread)))


def _frame(frame: Mapping[str, Any], code: Path) -> dict[str, Any]:
    file = str(frame["filename"])
    library = _LIBRARIES.match(file)
    generated = file.startswith("<") and file not in _WITHOUT_FILE
    own = library is None and not generated and not file.startswith(f"{RUNTIME}/")
    shown = file[library.end() :] if library else file.removeprefix(f"{code}/")
    return {"function": str(frame["name"]), "file": shown, "line": int(frame["line"]), "own": own}


def _runs_own_code(thread: Mapping[str, Any]) -> bool:
    return any(frame["own"] for frame in thread["frames"])


def _reported(threads: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The main thread, and the others that run the user's code."""
    some = [thread for thread in threads if thread["main"] or _runs_own_code(thread)][:_MOST_THREADS]
    return [{"name": thread["name"], "frames": thread["frames"][:_MOST_FRAMES]} for thread in some]


def _told(threads: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines for the log: the innermost call first, and of many calls inside of libraries only the ends."""
    lines = [line for thread in threads for line in _thread_lines(thread)]
    more = len(lines) - _MOST_LINES
    return lines[:_MOST_LINES] + ([f"weft:   and {more} more lines"] if more > 0 else [])


def _thread_lines(thread: Mapping[str, Any]) -> Iterator[str]:
    name = f': "{thread["name"]}"' if thread["name"] else ""
    yield f"weft:   Thread {thread['id']} ({'active' if thread['active'] else 'idle'}){name}"
    frames = thread["frames"]
    ends = [n for n, frame in enumerate(frames) if frame["own"]] + [len(frames)]
    begin = 0
    for end in ends:
        run = frames[begin:end]
        if len(run) >= _FOLDED:
            yield _frame_line(run[0])
            yield f"weft:       … {len(run) - 2} calls in libraries"
            yield _frame_line(run[-1])
        else:
            yield from map(_frame_line, run)
        if end < len(frames):
            yield _frame_line(frames[end])
        begin = end + 1


def _frame_line(frame: Mapping[str, Any]) -> str:
    file = frame["file"] if frame["own"] else frame["file"].rpartition("/")[2]
    return f"weft:       {frame['function']} ({file}:{frame['line']})"


def _state(process: psutil.Process) -> str:
    """By /proc: 'sleeping in do_poll, 3 threads'."""
    waits = ""
    try:
        name = Path(f"/proc/{process.pid}/wchan").read_text().strip()
        waits = f" in {name}" if name not in ("", "0") else ""
    except OSError:
        pass
    threads = process.num_threads()
    return f"{process.status()}{waits}, {threads} thread{'' if threads == 1 else 's'}"
