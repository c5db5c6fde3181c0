"""The folder for a Ray node's sockets, logs and session: it has a short path, and is removed with the node."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "weft-ray-"
_LONGEST = 107 - len("/weft-ray-abcdefgh/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
"""The longest path of the folder of temporary files with which the paths of Ray's Unix sockets are short enough."""
_NEW = 60.0
_WRITES = 10.0


@contextlib.contextmanager
def session_folder() -> Iterator[Path]:
    """A fresh folder, locked for as long as this process lives and removed at the end.

    A keeper that was killed leaves its folder behind, unlocked. The next keeper on this machine removes the folder.
    """
    place = next((parent for parent in (tempfile.gettempdir(), "/tmp") if len(parent) <= _LONGEST), "/tmp")  # noqa: S108
    sweep(Path(place))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def _remove(folder: Path) -> None:
    """Remove the folder. A process of Ray's that is about to end may still write into it."""
    end = time.monotonic() + _WRITES
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > end:
            return  # the next keeper's sweep removes it
        time.sleep(0.05)


def sweep(place: Path) -> None:
    """Remove what is left of nodes that were killed."""
    for folder in place.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            # A new one's owner may not have come to its lock yet.
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < _NEW:
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
