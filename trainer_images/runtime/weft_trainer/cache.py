"""The node's cache: what one learner has downloaded, no other learner on the node downloads again."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from weft_trainer.errors import DataError

_RESERVE = 0.05
"""Share of the disk that the cache leaves free."""


class NodeCache:
    """Content by identity (of all that names it: place, key, etag, size). Several processes may use it at once: each
    object has a lock, is written beside its place and renamed into it. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def provide(
        self,
        identity: Sequence[str],
        size: int,
        modified: float | None,
        fetch: Callable[[Path], None],
        target: Path,
    ) -> bool:
        """Put the object at ``target``, as a hard link or else a copy; ``fetch(path)`` brings it if it is not here.
        True when it was. It is given away read-only; whoever writes to it nevertheless (root can) changes its time,
        by which the next user sees that it is no longer what it was.

        Raises:
            DataError: and what ``fetch`` raises.
        """
        name = hashlib.sha256("\0".join(identity).encode()).hexdigest()
        place = self._folder / name[:2] / name[2:]
        place.parent.mkdir(exist_ok=True)
        time = int((modified or 0) * 1e9)
        with _locked(place.with_suffix(".lock")):
            found = _is(place, size, time)
            if not found:
                self._bring(place, size, time, fetch)
            _link(place, target)
        return found

    def _bring(self, place: Path, size: int, time: int, fetch: Callable[[Path], None]) -> None:
        self._make_room(size)
        part = place.with_suffix(".part")
        part.unlink(missing_ok=True)
        try:
            fetch(part)
            if part.stat().st_size != size:
                raise DataError(f"{part.stat().st_size} bytes came, {size} were announced")
            part.chmod(0o444)
            os.utime(part, ns=(time, time))
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        """Drop what was used longest ago, and by no learner now, if the disk would get too full."""
        disk = shutil.disk_usage(self._folder)
        wanted = size + int(disk.total * _RESERVE)
        if disk.free >= wanted:
            return
        for lock in sorted(self._folder.glob("*/*.lock"), key=lambda path: path.stat().st_mtime):
            _drop_unused(lock)
            if shutil.disk_usage(self._folder).free >= wanted:
                return
        free = shutil.disk_usage(self._folder).free
        if free < size:
            raise DataError(f"no space left on this node: {size:,} bytes are needed, {free:,} are free")


def _is(place: Path, size: int, time: int) -> bool:
    try:
        status = place.stat()
    except FileNotFoundError:
        return False
    return status.st_size == size and status.st_mtime_ns == time


def _link(place: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(place, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(place, target)


def _drop_unused(lock: Path) -> None:
    place = lock.with_suffix("")
    with contextlib.suppress(OSError), _locked(lock, wait=False):
        if place.stat().st_nlink == 1:
            place.unlink()


@contextmanager
def _locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Locked among threads and processes alike; the lock file's time says when it was last used."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        if wait:
            os.utime(handle)
        yield
    finally:
        os.close(handle)
