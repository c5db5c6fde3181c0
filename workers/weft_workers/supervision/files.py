"""Small files that several processes share: written whole or not at all, and locks that die with their holder."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def write_json(path: Path, value: object) -> None:
    """Replace ``path`` by ``value``; a reader sees the old file or the new one. Readable by the owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")  # threads may write the same file
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in ``path``; None when there is no such file, or no object in it."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def take(path: Path) -> int | None:
    """Lock ``path`` while the returned descriptor, or a copy that a child inherits, is open; None: it is held."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def held(path: Path) -> bool:
    """Whether some living process holds :func:`take`'s lock on ``path``."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two processes that ask don't take each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock on ``path`` and hold it in the block."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
