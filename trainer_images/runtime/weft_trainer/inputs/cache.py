"""The node's cache: an object that a learner has downloaded is not downloaded again by another learner on the node.

``objects/`` holds contents, by a hash of all that names them (place, key, ETag, size). There is no index: an object's
size and time say whether it is whole and unchanged, its access time when it was last used, its number of links whether
a learner has it in use. ``parts/`` holds objects that are being written. The writer of such a file holds its lock, and
the kernel drops the lock of a process that dies. ``claims/`` holds, locked likewise, the sizes that running downloads
are about to add. So the cache needs no repair after an agent has died.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from weft_trainer.errors import DataError

_RESERVE = 0.05
"""Share of the disk that the cache leaves free."""
_SHARE = 0.25
"""Share of the disk that the cache takes by default."""
_FRESH = 3600.0
"""Seconds within which a second use does not count."""
_STALE = 24 * 3600.0


class Brought(Enum):
    """How an object came to its target."""

    CACHED = "it was in the cache"
    FETCHED = "it was downloaded"
    BUSY = "not at all: another process downloads it just now"


class CacheRequest(NamedTuple):
    """An object, and the path that it is to have."""

    identity: str
    """A hash of all that names the content."""
    size: int
    time: int
    """The file's time is set to these nanoseconds, so that a later write to the file shows."""
    target: str
    """A path; there may be hundreds of thousands, and a Path costs as much as a system call."""

    @classmethod
    def of(cls, identity: Sequence[str], size: int, modified: float | None, target: Path | str) -> CacheRequest:
        name = hashlib.sha256("\0".join(identity).encode()).hexdigest()
        return cls(name, size, int((modified or 0) * 1e6) * 1000, str(target))


Fetch = Callable[[int], None]
"""Writes the whole content into this open file."""


class NodeCache:
    """Thread-safe, and safe to use by several processes at once. It gives away hard links, read-only (copies,
    where the target is on another disk). A process that writes to a link nevertheless (root can) changes its time.

    Args:
        folder: where it is; made if missing.
        limit: bytes that it may take; None: a quarter of the disk. Besides, some of the disk is always left free.
    """

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.folder = folder
        self._objects = folder / "objects"
        self._parts = folder / "parts"
        self._claims = folder / "claims"
        for place in (self._objects, self._parts, self._claims):
            place.mkdir(parents=True, exist_ok=True)
        self.limit = int(shutil.disk_usage(folder).total * _SHARE) if limit is None else limit

    # --- one object ---

    def has(self, request: CacheRequest) -> bool:
        try:
            status = os.stat(self._place(request))
        except FileNotFoundError:
            return False
        return status.st_size == request.size and status.st_mtime_ns == request.time

    def give(self, request: CacheRequest) -> bool:
        """Put it at its target if it is here."""
        place = self._place(request)
        try:
            status = os.stat(place)
            if status.st_size != request.size or status.st_mtime_ns != request.time:
                return False
            _link(place, request.target)
        except FileNotFoundError:  # also: dropped just now
            return False
        if time.time() - status.st_atime > _FRESH:
            with contextlib.suppress(OSError):
                os.utime(place, ns=(time.time_ns(), request.time))
        return True

    def bring(self, request: CacheRequest, fetch: Fetch, *, wait: bool = True) -> Brought:
        """Put it at its target, downloading it if it is not here; never twice at the same time on this node.

        Raises:
            DataError: or any error that ``fetch`` raises.
        """
        part = f"{self._parts}/{request.identity}"
        with _locked(part, wait=wait) as file:
            if file is None:
                return Brought.BUSY
            if self.give(request):
                _remove(part)
                return Brought.CACHED
            try:
                os.ftruncate(file, 0)  # an agent that was killed may have left something
                _fill(file, request, fetch)
                _link(part, request.target)  # before it can be dropped again
                place = self._place(request)
                try:
                    os.rename(part, place)
                except FileNotFoundError:
                    os.makedirs(os.path.dirname(place), exist_ok=True)
                    os.rename(part, place)
            except BaseException:
                _remove(part)
                raise
        return Brought.FETCHED

    @staticmethod
    def bypass(request: CacheRequest, fetch: Fetch) -> None:
        """Download it to its target alone. Raises: as :meth:`bring`."""
        part = os.path.join(os.path.dirname(request.target), f".{secrets.token_hex(16)}.part")
        try:
            file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                _fill(file, request, fetch)
            finally:
                os.close(file)
            os.replace(part, request.target)
        finally:
            _remove(part)

    # --- room ---

    @contextmanager
    def room(self, requests: Sequence[CacheRequest]) -> Iterator[set[str]]:
        """Make room for a download, by dropping the objects that were used longest ago and are in no use now.
        Gives the identities for which there is room. The others have to :meth:`bypass`.

        Raises:
            DataError: not even the disk has room.
        """
        sizes = {request.identity: request.size for request in requests}
        # Learners of the same job bring the same objects: their claims count once.
        subject = hashlib.sha256("".join(sorted(sizes)).encode()).hexdigest()[:32]
        claim = self._claims / f"{subject}.{secrets.token_hex(16)}"
        with _locked(claim) as file:
            assert file is not None
            try:
                with _locked(self.folder / "lock"):
                    chosen = self._plan(sizes, subject)
                    os.write(file, str(sum(sizes[identity] for identity in chosen)).encode())
                yield chosen
            finally:
                claim.unlink(missing_ok=True)

    def _plan(self, sizes: dict[str, int], subject: str) -> set[str]:
        self._sweep()
        need = sum(sizes.values())
        there = list(self._there())
        used = sum(size for _, size, _, _ in there) + self._claimed(subject)
        disk = shutil.disk_usage(self.folder)
        free = disk.free - int(disk.total * _RESERVE)
        for _, size, links, path in sorted(there, key=lambda entry: entry[0]):
            if used + need <= self.limit and need <= free:
                break
            if links == 1 and path.name not in sizes:
                with contextlib.suppress(OSError):
                    path.unlink()
                    used -= size
                    free += size
        available = shutil.disk_usage(self.folder).free
        if need > available:
            raise DataError(f"no space left on this node: {need:,} bytes are needed, {available:,} are free")
        room = min(self.limit - used, free)
        chosen = set()
        for identity, size in sizes.items():
            if size <= room:
                room -= size
                chosen.add(identity)
        return chosen

    def _there(self) -> Iterator[tuple[float, int, int, Path]]:
        """(last used, size, links, path) of each object."""
        for folder in os.scandir(self._objects):
            for entry in os.scandir(folder.path):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
                    yield status.st_atime, status.st_size, status.st_nlink, Path(entry.path)

    def _claimed(self, subject: str) -> int:
        """The bytes that running downloads of others may still add."""
        amounts: dict[str, int] = {}
        for path in self._claims.iterdir():
            name = path.name.partition(".")[0]
            if name == subject:
                continue
            with contextlib.suppress(OSError, ValueError):
                if _is_locked(path):
                    amounts[name] = max(amounts.get(name, 0), int(path.read_text() or 0))
                else:
                    path.unlink()
        return sum(amounts.values())

    def _sweep(self) -> None:
        """Remove parts that killed agents have left."""
        for path in self._parts.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE and not _is_locked(path):
                    path.unlink()

    def _place(self, request: CacheRequest) -> str:
        return f"{self._objects}/{request.identity[:2]}/{request.identity}"


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _fill(file: int, request: CacheRequest, fetch: Fetch) -> None:
    fetch(file)
    size = os.fstat(file).st_size
    if size != request.size:
        raise DataError(f"{os.path.basename(request.target)}: {size:,} bytes came, {request.size:,} were announced")
    os.fchmod(file, 0o444)
    os.utime(file, ns=(time.time_ns(), request.time))


def _link(place: str, target: str) -> None:
    try:
        os.link(place, target)
    except FileExistsError:
        os.unlink(target)
        os.link(place, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or a file system without links
        _remove(target)
        shutil.copy2(place, target)


def _is_locked(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


@contextmanager
def _locked(path: Path | str, wait: bool = True) -> Iterator[int | None]:
    """The file, open and locked among threads and processes alike; None: another process has it and ``wait`` is
    false."""
    while True:
        file, writable = _opened(path)
        if file is None:
            continue
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            if not _still(path, file):
                continue
            if writable:
                yield file
                return
            _remove(str(path))  # whole, and left by an agent that was killed before it could move it
        finally:
            os.close(file)


def _opened(path: Path | str) -> tuple[int | None, bool]:
    """The file, and whether it can be written to; None: it was moved away just now.

    A part that is whole is read-only already. Its writer may still be about to link and to move it, so it is opened
    all the same, for the lock alone.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644), True
    except PermissionError:
        try:
            return os.open(path, os.O_RDONLY), False
        except FileNotFoundError:
            return None, False


def _still(path: Path | str, file: int) -> bool:
    """Whether this file still has the name: the process that had the lock may have moved it away."""
    try:
        return os.stat(path).st_ino == os.fstat(file).st_ino
    except FileNotFoundError:
        return False
