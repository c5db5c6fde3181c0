"""The places in the code where the program's processes are just now: Python stacks by py-spy, or the state in /proc.

py-spy reads a process from outside, so that it needs no help of a program that hangs. The kernel has to allow that
(ptrace). On most machines a process may read others of its user; where Yama's ``ptrace_scope`` is 1, only its ancestors
may, and processes that it has named: the agent's children name the agent (see ``machine.prctl.tracing_consent``), whose
descendant py-spy is. Processes that these start are then out of reach, as are all in a container that forbids ptrace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import psutil

from weft_trainer.config import RUNTIME

_MOST_PROCESSES = 64
_MOST_LINES = 400
"""Lines for each process."""
_SECONDS = 20.0
_REFUSED = ("permission denied", "operation not permitted", "eperm", "eacces")


def dump(ignore: Collection[int]) -> Iterator[str]:
    """The lines, of all processes below the agent but ``ignore``."""
    processes = [process for process in psutil.Process().children(recursive=True) if process.pid not in ignore]
    spy = find_py_spy()
    if spy is None:
        yield "weft: there is no py-spy in this environment, so /proc has to do (pip install py-spy)"
    for process in processes[:_MOST_PROCESSES]:
        try:
            words = " ".join(" ".join(process.cmdline()).split()) or process.name()
            python = spy is not None and _is_python(process)
            yield f"weft: process {process.pid} ({words[:200]}), {_state(process)}"
            if python and spy is not None:
                yield from (f"weft:   {line}" for line in _stacks(spy, process.pid))
        except psutil.NoSuchProcess:
            continue
        except psutil.Error as error:
            yield f"weft: process {process.pid}: {error}"
    if len(processes) > _MOST_PROCESSES:
        yield f"weft: and {len(processes) - _MOST_PROCESSES} more processes"


def find_py_spy() -> str | None:
    """Beside the agent (where the engine brings it), in its environment, or on the PATH."""
    for place in (RUNTIME / "weft_trainer" / "bin" / "py-spy", Path(sys.executable).parent / "py-spy"):
        if os.access(place, os.X_OK):
            return str(place)
    return shutil.which("py-spy")


def _is_python(process: psutil.Process) -> bool:
    try:
        names = [process.exe(), *(mapped.path for mapped in process.memory_maps(grouped=True))]
    except psutil.AccessDenied:
        return True  # py-spy says so in better words
    return any("python" in Path(name).name for name in names)


def _stacks(spy: str, pid: int) -> list[str]:
    try:
        # Without stopping it: its stack does not change.
        done = subprocess.run(
            [spy, "dump", "--nonblocking", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return [f"py-spy does not run: {error}"]
    if done.returncode != 0:
        said = " ".join(done.stderr.split()).removeprefix("Error: ")
        if any(word in said.lower() for word in _REFUSED):
            return [f"its stack can't be read: ptrace is refused here ({said[:200]})"]
        return [f"its stack can't be read: {said[:300]}"]
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    # Before the first thread come the command line, which may have any number of lines, and Python's version.
    lines = lines[next((n for n, line in enumerate(lines) if line.startswith("Thread ")), 0) :]
    return lines[:_MOST_LINES] + ([f"and {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else [])


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
