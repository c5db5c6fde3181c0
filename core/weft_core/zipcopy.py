"""Writes a zip from the entries of another, under other names, without unpacking them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from weft_core.zipscan import BundleError, Entry, file_mode

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")
_VERSION, _VERSION64, _UNIX, _UTF8 = 20, 45, 3 << 8, 0x800
_TIME, _DATE = 0, 0x21  # the zip's own year 0, so that the same code has the same hash
_CHUNK = 1 << 18
_MOST = 0xFFFFFFFF


def copy_entries(file: BinaryIO, entries: Iterable[tuple[Entry, str, int]], target: Path) -> None:
    """Write each entry of ``file``, whose compressed data begins at the number beside it, under its new name.

    The data is copied as it is: the reader of ``target`` finds out what is wrong with it.

    Raises:
        BundleError: the zip would have more than 4 GiB.
    """
    directory: list[bytes] = []
    with target.open("wb") as out:
        for entry, name, start in entries:
            raw = name.encode()
            offset = out.tell()
            if offset + entry.compressed + len(raw) + _LOCAL.size > _MOST:
                raise BundleError("the zip has more than 4 GiB", "too_large")
            flags = 0 if name.isascii() else _UTF8
            sizes = (entry.crc, entry.compressed, entry.size)
            head = (_VERSION, flags, entry.method, _TIME, _DATE, *sizes, len(raw), 0)
            out.write(_LOCAL.pack(b"PK\3\4", *head) + raw)
            for piece in _pieces(file, start, entry.compressed):
                out.write(piece)
            place = (0, 0, 0, file_mode(entry) << 16, offset)
            directory.append(_CENTRAL.pack(b"PK\1\2", _UNIX | _VERSION, *head, *place) + raw)
        at = out.tell()
        out.writelines(directory)
        out.write(_end(len(directory), at, out.tell() - at))


def _pieces(file: BinaryIO, start: int, size: int) -> Iterator[bytes]:
    file.seek(start)
    while size and (piece := file.read(min(_CHUNK, size))):
        size -= len(piece)
        yield piece


def _end(count: int, at: int, size: int) -> bytes:
    if count < 0xFFFF and at + size < _MOST:
        return _END.pack(b"PK\5\6", 0, 0, count, count, size, at, 0)
    version = (_UNIX | _VERSION64, _VERSION64)
    wide = _END64.pack(b"PK\6\6", _END64.size - 12, *version, 0, 0, count, count, size, at)
    return (
        wide + _LOCATOR64.pack(b"PK\6\7", 0, at + size, 1) + _END.pack(b"PK\5\6", 0, 0, *[0xFFFF] * 2, *[_MOST] * 2, 0)
    )
