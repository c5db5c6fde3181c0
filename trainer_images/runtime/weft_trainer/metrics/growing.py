"""Reads files while a program writes them. The agent never hangs, even if the program puts a pipe in their place."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_LONGEST_LINE = 1 << 20


class Found(NamedTuple):
    """A file in or below ``root``, one of the watched folders."""

    root: Path
    path: Path
    status: os.stat_result


@contextmanager
def open_regular(path: Path) -> Iterator[int]:
    """A descriptor to read ``path``. Raises: OSError, also if it is not a regular file (a pipe would block)."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{path} is no regular file")
        yield file
    finally:
        os.close(file)


class LineFile:
    """The complete lines of a file that is appended to, or begun anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.waiting = 0
        """Bytes that the last read found and left."""
        self._inode = -1
        self._rest = b""

    def read(self, most: int, keep: int | None = None) -> tuple[list[bytes], int]:
        """The next lines, of at most ``most`` bytes, and how many bytes were passed over because more than ``keep``
        waited."""
        try:
            with open_regular(self.path) as file:
                return self._read(file, most, keep)
        except OSError:
            self.waiting = 0
            return [], 0

    def _read(self, file: int, most: int, keep: int | None) -> tuple[list[bytes], int]:
        status = os.fstat(file)
        if status.st_ino != self._inode or status.st_size < self.offset:
            self._inode, self.offset, self._rest = status.st_ino, 0, b""
        passed = 0
        if keep is not None and status.st_size - self.offset > keep:
            passed = status.st_size - keep - self.offset
            self.offset, self._rest = status.st_size - keep, b""
        # Never more than there is: a large buffer that shrinks afterwards leaves holes in the agent's memory.
        data = os.pread(file, min(most, status.st_size - self.offset), self.offset)
        self.offset += len(data)
        self.waiting = max(0, status.st_size - self.offset)
        if passed:
            data = data.partition(b"\n")[2]  # it began in the middle of a line
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            self._rest = b""
        return lines, passed
