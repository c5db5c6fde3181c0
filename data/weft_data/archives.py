"""The places of files in a tar archive, without unpacking it: each image is read later from its place.

No file is ever written under a name from an archive. An archive that holds links, devices or names that lead out of it
is refused all the same, because no published data set has them.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from weft_data.errors import DatasetError

_BLOCK = 512
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"PK": "zip"}


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A regular file in an archive: ``size`` bytes of the archive from ``offset``."""

    name: str
    offset: int
    size: int


def members(path: Path, part: ArchiveMember | None = None) -> Iterator[ArchiveMember]:
    """The regular files of an uncompressed tar archive, or of the archive that is the member ``part`` of ``path``.

    Raises:
        DatasetError: it is not a tar archive, is compressed or truncated, or is refused (see above).
    """
    where = f"{path}: {part.name}" if part else str(path)
    try:
        with path.open("rb") as file:
            end = part.offset + part.size if part else path.stat().st_size
            file.seek(part.offset if part else 0)
            yield from _members(file, where, end)
    except OSError as error:
        raise DatasetError(f"{where}: {error.strerror or error}") from error
    except (tarfile.TarError, ValueError, UnicodeError) as error:
        raise DatasetError(f"{where} is not a tar archive, or is damaged: {error}") from error


def _members(file: IO[bytes], where: str, end: int) -> Iterator[ArchiveMember]:
    start = file.tell()
    magic = file.read(2)
    if magic in _COMPRESSED:
        raise DatasetError(
            f"{where} is compressed ({_COMPRESSED[magic]}), and images are read in place: unpack it first"
        )
    file.seek(start)
    with tarfile.TarFile(fileobj=file) as tar:
        while (info := tar.next()) is not None and info.offset < end:
            tar.members = []  # type: ignore[attr-defined]  # or it would keep every header
            _refuse_hostile(info, where)
            if info.offset_data + info.size > end:
                raise DatasetError(f"{where} is cut off in the middle of {info.name!r}: get the file again")
            if info.isreg():
                yield ArchiveMember(info.name, info.offset_data, info.size)
        at_the_end = info is None and tar.offset + _BLOCK <= end
        file.seek(tar.offset)
        if not at_the_end or file.read(_BLOCK).strip(b"\0"):
            raise DatasetError(f"{where} is cut off: it does not end with the empty blocks of a tar archive")


def _refuse_hostile(info: tarfile.TarInfo, where: str) -> None:
    name = info.name
    if info.issym() or info.islnk():
        raise DatasetError(f"{where} holds a link, {name!r} → {info.linkname!r}; only files and folders are accepted")
    if info.issparse() or not (info.isreg() or info.isdir()):
        raise DatasetError(f"{where} holds {name!r}, which is not a regular file; only files and folders are accepted")
    if name.startswith("/") or "\\" in name or ".." in name.split("/") or not name.isprintable():
        raise DatasetError(f"{where} holds the name {name!r}, which leads out of the archive; it is refused")
