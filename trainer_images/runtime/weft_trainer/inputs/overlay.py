"""The overlay: the packages that the image lacks, unpacked once on each node.

An overlay is a folder in the node's cache, named after the content of its archive. An agent that uses it holds a shared
lock on the file beside it, and the kernel drops the lock of an agent that dies. An overlay that nobody uses is removed
when nobody has used it for a week, or earlier when the disk is full.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from weft_trainer.errors import DataError
from weft_trainer.inputs.cache import CacheRequest, NodeCache
from weft_trainer.inputs.code import extract, fetch_bundle
from weft_trainer.spec import BundleInput
from weft_trainer.words import size

_NAME = "the archive of the job's packages"
_UNUSED = 7 * 24 * 3600.0
_UNPACKED = 4
"""The factor by which an archive grows, about, when it is unpacked."""


class Overlay:
    """An unpacked overlay, kept on this node until :meth:`release` or the end of this process."""

    def __init__(self, folder: Path, lock: int, words: str) -> None:
        self.folder = folder
        self.words = words
        """A description of the work for it; empty: it was here."""
        self._lock = lock

    def release(self) -> None:
        os.close(self._lock)


def bring_overlay(bundle: BundleInput, cache: NodeCache, scratch: Path) -> Overlay:
    """The overlay, unpacked by this learner or by another one on this node, which this learner waits for.

    Args:
        bundle: its archive.
        cache: the node's.
        scratch: a folder of this learner's, for the archive.

    Raises:
        DataError: it can't be brought, or is not the archive that was built.
    """
    place = cache.folder / "overlays"
    place.mkdir(exist_ok=True)
    folder, lock = place / bundle.sha256, place / f"{bundle.sha256}.lock"
    words = ""
    while True:
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
            if folder.is_dir():
                os.utime(lock)
                return Overlay(folder, file, words)
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        # The lock of a file of its own. The other one is held by the learners that use the overlay, for as long as they
        # run. A learner that waited for it could wait for a peer that waits for this learner.
        with folder.with_suffix(".making").open("wb") as making:
            fcntl.flock(making, fcntl.LOCK_EX)
            if not folder.is_dir():
                _make_room(place, bundle.size * _UNPACKED)
                words = _unpack(bundle, cache, scratch, folder)


def _unpack(bundle: BundleInput, cache: NodeCache, scratch: Path, folder: Path) -> str:
    begun = time.monotonic()
    archive, draft = scratch / "packages.zip", folder.with_name(f".{secrets.token_hex(16)}")
    try:
        cache.bring(
            CacheRequest.of(("overlay", bundle.sha256), bundle.size, None, archive),
            lambda file: fetch_bundle(bundle, file, _NAME),
        )
        draft.mkdir()
        extract(archive, draft, _NAME)
        draft.rename(folder)
    except OSError as error:
        raise DataError(f"{_NAME} can't be unpacked: {error}") from error
    finally:
        archive.unlink(missing_ok=True)
        shutil.rmtree(draft, ignore_errors=True)
    return f"packages ({size(bundle.size)}) in {time.monotonic() - begun:.1f} s"


def _make_room(place: Path, need: int) -> None:
    """Remove unused overlays: old ones, and as many others as the disk needs room for."""
    for lock in sorted(place.glob("*.lock"), key=_last_used):
        if time.time() - _last_used(lock) < _UNUSED and shutil.disk_usage(place).free > need:
            break
        with _unused(lock) as free:
            if free:
                # The folder goes in one step. A lock file stays: another learner may have it open.
                gone = place / f".{secrets.token_hex(16)}"
                with contextlib.suppress(FileNotFoundError):
                    (place / lock.stem).rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
    for draft in place.glob(".*"):  # of agents that were killed
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > _UNUSED:
                shutil.rmtree(draft, ignore_errors=True)


def _last_used(lock: Path) -> float:
    try:
        return lock.stat().st_mtime
    except OSError:
        return 0.0


@contextlib.contextmanager
def _unused(lock: Path) -> Iterator[bool]:
    """Whether no learner uses the overlay of this lock. If so, none can use it until the end of the context."""
    file = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(file)
