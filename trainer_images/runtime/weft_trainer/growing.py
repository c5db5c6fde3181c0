"""Reads files while a program writes them. The agent never hangs, even if the program puts a pipe in their place."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_LONGEST_LINE = 1 << 20
_BEGINNING = 256
"""Bytes. Most logs begin with a time or a version."""


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


class Identity:
    """Tells whether an open file is the file that was read last.

    The inode alone does not say so. A program may begin a file anew, and a new file may get the inode of a removed one.
    """

    def __init__(self) -> None:
        self._inode = -1
        self._beginning = b""

    def remember(self, file: int) -> None:
        """``file`` (a descriptor) is the file that is read now."""
        self._inode, self._beginning = os.fstat(file).st_ino, os.pread(file, _BEGINNING, 0)

    def is_same(self, file: int, offset: int) -> bool:
        """Whether ``file`` (a descriptor) is the file that is remembered, which has been read up to ``offset``
        (bytes)."""
        status = os.fstat(file)
        if status.st_ino != self._inode or status.st_size < offset:
            return False
        known = self._beginning[:offset]
        return os.pread(file, len(known), 0) == known


class LineFile:
    """The complete lines of a file that is appended to, or begun anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.waiting = 0
        """Bytes that the last read found and left."""
        self._identity = Identity()
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
        if not self._identity.is_same(file, self.offset):
            self.offset, self._rest = 0, b""
        self._identity.remember(file)
        status = os.fstat(file)
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
