"""Unpacks a tar that a learner sends. The learner may be hostile: nothing outside of the target is touched."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from weft.errors import TransferError

_HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_LONGEST_HEADER = 1 << 20
_COPY = 1 << 20


class _Entry(tarfile.TarInfo):
    """Refuses headers that would fill the memory: tarfile reads each as a whole."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in (*_HEADERS, *_NAMES) and self.size > _LONGEST_HEADER:
            raise TransferError(f"the learner sent a header of {self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def unpack(source: IO[bytes], root: Path, warn: Callable[[str], None]) -> int:
    """Unpack a tar whose first entry is a file or a folder, and whose other entries are below it.

    Args:
        root: the new path of the first entry, whatever its name in the tar.
        warn: called for each entry that is left out.

    Returns:
        The number of files.

    Raises:
        TransferError: an entry has a place outside, the tar is damaged, or a file can't be written.
    """
    links: list[tuple[Path, str]] = []
    files = 0
    top: str | None = None
    try:
        with tarfile.open(fileobj=source, mode="r|", tarinfo=_Entry, bufsize=_COPY) as archive:
            for entry in archive:
                first, *rest = _parts(entry.name)
                top = first if top is None else top
                if first != top:
                    raise TransferError(f"the learner sent {entry.name!r}, which is not below {top!r}")
                place = root.joinpath(*rest)
                _check_inside(place, root)
                if entry.isdir():
                    place.mkdir(exist_ok=True, parents=bool(rest))
                elif entry.isreg() and not entry.issparse():
                    _write(archive, entry, place)
                    files += 1
                elif entry.issym():
                    links.append((place, entry.linkname))
                else:
                    warn(f"{entry.name} is no file, folder or symbolic link: left out")
        for place, goal in links:  # last, so that nothing is written through them
            files += _link(place, goal, root, warn)
    except tarfile.TarError as error:
        raise TransferError(f"the files did not arrive whole: {error}") from error
    except OSError as error:
        raise TransferError(f"{error.filename or root}: {error.strerror or error}") from error
    return files


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part or (os.sep != "/" and os.sep in part) for part in parts):
        raise TransferError(f"the learner sent the name {name!r}, which is no place below the target")
    return parts


def _check_inside(place: Path, root: Path) -> None:
    """Links that were there before may lead out."""
    above = os.path.realpath(root.parent)
    if place != root:
        above = os.path.realpath(root)
    if os.path.commonpath([os.path.realpath(place.parent), above]) != above:
        raise TransferError(f"{place.parent} leads out of the target, by a symbolic link")


def _write(archive: tarfile.TarFile, entry: tarfile.TarInfo, place: Path) -> None:
    content = archive.extractfile(entry)
    assert content is not None
    if place.is_symlink():
        place.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    mode = 0o755 if entry.mode & stat.S_IXUSR else 0o644
    with open(place, "wb", opener=lambda path, _: os.open(path, flags, mode)) as file:
        shutil.copyfileobj(content, file, _COPY)


def _link(place: Path, goal: str, root: Path, warn: Callable[[str], None]) -> int:
    inside = os.path.normpath(os.path.join(place.parent, goal))
    if (
        place == root
        or os.path.isabs(goal)
        or os.path.commonpath([inside, os.path.normpath(root)]) != str(os.path.normpath(root))
    ):
        warn(f"{place} would be a link to {goal}, outside of what is copied: left out")
        return 0
    if place.is_symlink() or place.exists():
        place.unlink()
    place.symlink_to(goal)
    return 1
