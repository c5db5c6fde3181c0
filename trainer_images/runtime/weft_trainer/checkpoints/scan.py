"""The content of CHECKPOINT_DIR at a moment, and the files in it that a process has open."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from weft_trainer.stores.paths import files_below

SAVING = ".saving"
"""A program may put a file of this name into a folder while it saves there: nothing of that folder counts meanwhile."""
_TEMPORARY = re.compile(
    r"(\.(tmp|temp|part|partial|incomplete|swp)|~)$"
    r"|^\.saving$"
    r"|\.tempstate\d+"  # TensorFlow
    r"|orbax-checkpoint-tmp"
    r"|^tmp[a-z0-9_]{8}$"  # Python's tempfile
)


class FileStamp(NamedTuple):
    """A file at one moment. If its stamp is the same later, nothing has been written to it."""

    size: int
    mtime_ns: int
    inode: int
    link: str | None = None


def scan(folder: Path) -> dict[str, FileStamp]:
    """Every file and link by its key, except files that are temporary by name."""
    return _stamps(folder, temporary=False)


def temporaries(folder: Path) -> dict[str, FileStamp]:
    """The files that are temporary by name."""
    return _stamps(folder, temporary=True)


def is_temporary(key: str) -> bool:
    return any(_TEMPORARY.search(part) for part in key.split("/"))


def _stamps(folder: Path, temporary: bool) -> dict[str, FileStamp]:
    found = {}
    for key, path in files_below(folder):
        if is_temporary(key) is temporary and (stamp := stamp_of(path)) is not None:
            found[key] = stamp
    return found


def stamp_of(path: Path) -> FileStamp | None:
    try:
        status = path.lstat()
        link = os.readlink(path) if path.is_symlink() else None
    except OSError:
        return None
    if link is not None and (link.startswith("/") or ".." in link.split("/")):
        return None  # leads out of the folder, and means nothing elsewhere
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ino, link)


def has_settled(path: Path) -> bool:
    """Whether the last change of a file was no write but, say, a rename. The files that a killed writer leaves have not
    settled."""
    try:
        status = path.lstat()
    except OSError:
        return True
    return stat.S_ISLNK(status.st_mode) or status.st_ctime_ns > status.st_mtime_ns


def saving(folder: Path) -> set[str]:
    """Top-level names below which a program says that it is saving; "" is the whole folder."""
    return {key.partition("/")[0] if "/" in key else "" for key, path in files_below(folder) if path.name == SAVING}


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
