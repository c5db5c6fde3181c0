"""What is in CHECKPOINT_DIR, and which files of it are complete."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from weft_trainer.paths import files_below

_TEMPORARY = re.compile(
    r"(\.(tmp|temp|part|partial|incomplete|swp)|~)$"
    r"|\.tempstate\d+"  # TensorFlow
    r"|orbax-checkpoint-tmp"
    r"|^tmp[a-z0-9_]{8}$"  # Python's tempfile
)


@dataclass(frozen=True)
class Look:
    """A file at one moment; the same again later means that nobody has written to it."""

    size: int
    mtime_ns: int
    inode: int
    link: str | None = None


def scan(folder: Path) -> dict[str, Look]:
    """Every file and link by its key, but for those that are temporary by name."""
    found = {}
    for key, path in files_below(folder):
        if any(_TEMPORARY.search(part) for part in key.split("/")):
            continue
        look = look_at(path)
        if look is not None:
            found[key] = look
    return found


def look_at(path: Path) -> Look | None:
    try:
        status = path.lstat()
        link = os.readlink(path) if path.is_symlink() else None
    except OSError:
        return None
    if link is not None and (link.startswith("/") or ".." in link.split("/")):
        return None  # leads out of the folder: means nothing elsewhere
    return Look(status.st_size, status.st_mtime_ns, status.st_ino, link)


def being_written(folder: Path) -> set[str]:
    """Keys of files in ``folder`` that a process below the agent has open for writing."""
    import psutil  # 20 ms that no start should wait for

    keys = set()
    for process in psutil.Process().children(recursive=True):
        try:
            opened = process.open_files()
        except psutil.Error:
            continue
        for file in opened:
            path = Path(file.path)
            if file.mode != "r" and path.is_relative_to(folder):
                keys.add(path.relative_to(folder).as_posix())
    return keys


def complete(first: Mapping[str, Look], second: Mapping[str, Look], open_now: Iterable[str]) -> dict[str, Look]:
    """The files of the second look that are as they were at the first, and that nobody has open for writing."""
    busy = set(open_now)
    return {key: look for key, look in second.items() if first.get(key) == look and key not in busy}
