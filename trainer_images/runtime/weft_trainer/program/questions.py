"""Questions of the agent to a process of the program, which a thread of Weft's in that process answers (see
``program.collectives`` and ``program.profiling``): the agent writes into the FIFO `PID.asked`, and the thread puts the
file `PID.json` beside it."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Collection
from pathlib import Path

_MOST_PROCESSES = 64


def waiting(folder: Path) -> set[int]:
    """The processes that may be asked. One that has ended may be among them."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder))[: 4 * _MOST_PROCESSES]:
            name = re.fullmatch(r"(\d+)\.asked", entry.name)
            if name is not None and len(found) < _MOST_PROCESSES:
                found.add(int(name[1]))
    return found


def ask(
    folder: Path, question: Callable[[int], bytes] = lambda pid: b"", only: Collection[int] | None = None
) -> set[int]:
    """Ask all processes, or those in ``only``. Returns those that will answer if they can run.

    Args:
        question: what to write for a process; at most 4096 bytes, which go through a pipe as a whole.
    """
    asked: set[int] = set()
    for pid in waiting(folder) if only is None else only:
        with contextlib.suppress(OSError):
            (folder / f"{pid}.json").unlink(missing_ok=True)
            # The open succeeds only if a thread waits at the other end.
            pipe = os.open(folder / f"{pid}.asked", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                if stat.S_ISFIFO(os.fstat(pipe).st_mode):
                    os.write(pipe, question(pid))
                    asked.add(pid)
            finally:
                os.close(pipe)
    return asked


def answer(folder: Path, pid: int, most: int) -> bytes | None:
    """What a process has answered, up to ``most`` bytes; None: nothing yet. The program can put anything there."""
    try:
        file = open_regular(folder / f"{pid}.json")
    except OSError:
        return None
    if file is None:
        return b""
    with open(file, "rb") as content:
        return content.read(most)


def open_regular(path: Path) -> int | None:
    """A descriptor of a file that the program has made; None: it is no regular file. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
