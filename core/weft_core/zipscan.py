"""Reads a zip's directory without trusting it, in memory bounded by the number of entries.

``zipfile`` trusts the central directory and holds all of it; a bundle comes from outside, so here every entry
is compared with its local header, and none may share bytes with another.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s4B4HL2L5H2L")
_LOCAL = struct.Struct("<4s2B4HL2L2H")
_ENCRYPTED, _SIZES_FOLLOW, _PATCHES, _UTF8 = 0x2041, 0x8, 0x20, 0x800  # flags; encrypted in one of three ways
_NEWEST = 63  # version 6.3 of the format, the last that Python's zipfile reads
_METHODS = {0: "stored", 8: "deflated"}
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_NAME = 1024
_LONGEST_PART = 255


class BundleError(Exception):
    """A zip that is not accepted; the message names the file and the limit, ``code`` says which rule it broke."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder in a zip, as its central directory has it."""

    name: str
    flags: int
    method: int
    crc: int
    compressed: int
    size: int
    offset: int
    mode: int

    @property
    def is_folder(self) -> bool:
        return self.name.endswith("/")

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


@dataclass(frozen=True)
class Directory:
    """The place of a zip's central directory, and the number of entries that it announces."""

    offset: int
    size: int
    entries: int


def find_directory(file: BinaryIO, file_size: int) -> Directory:
    """The central directory, from the record at the very end of the file."""
    tail_size = min(file_size, _END.size + 0xFFFF)
    file.seek(file_size - tail_size)
    tail = file.read(tail_size)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        begins_as_zip = file_size >= 4 and _read(file, 0, 4) == b"PK\x03\x04"
        if begins_as_zip:
            raise BundleError("the zip is cut off: it has a beginning and no end", "truncated")
        raise BundleError("not a zip file", "not_a_zip")
    _, disk, first_disk, here, entries, size, offset, comment = _END.unpack_from(tail, at)
    if at + _END.size + comment != len(tail):
        raise BundleError("there is data after the end of the zip", "malformed")
    end = file_size - tail_size + at
    if entries == 0xFFFF or size == 0xFFFFFFFF or offset == 0xFFFFFFFF:
        end, disk, first_disk, here, entries, size, offset = _find_zip64(file, end)
    if disk or first_disk or here != entries:
        raise BundleError("a zip of several parts, which is not accepted", "malformed")
    if offset + size != end:
        raise BundleError("the zip's directory is not where its end says: cut off or damaged", "truncated")
    return Directory(offset, size, entries)


def _find_zip64(file: BinaryIO, end: int) -> tuple[int, int, int, int, int, int, int]:
    damaged = BundleError("the zip's directory (zip64) is damaged", "malformed")
    at = end - _END64_LOCATOR.size
    if at < _END64.size:
        raise damaged
    magic, _, record, disks = _END64_LOCATOR.unpack(_read(file, at, _END64_LOCATOR.size))
    if magic != b"PK\x06\x07" or disks > 1 or record + _END64.size > at:
        raise damaged
    magic, length, _, _, disk, first_disk, here, entries, size, offset = _END64.unpack(_read(file, record, _END64.size))
    if magic != b"PK\x06\x06" or record + 12 + length != at:
        raise damaged
    return record, disk, first_disk, here, entries, size, offset


def read_entries(file: BinaryIO, directory: Directory, *, of_folder: bool = False) -> Iterator[Entry]:
    """The entries of the central directory, in its order, each checked by itself.

    The caller must not move ``file`` between two of them.

    Args:
        of_folder: FfDL's client has made it, of a folder: a link holds the content of the file that it leads to. A link
            to a folder is empty, and the zip ends there.
    """
    file.seek(directory.offset)
    left = directory.size
    for _ in range(directory.entries):
        head = file.read(_CENTRAL.size)
        if len(head) < _CENTRAL.size or head[:4] != b"PK\x01\x02":
            raise BundleError("the zip's directory has fewer entries than it says: cut off or damaged", "truncated")
        fields = _CENTRAL.unpack(head)
        version, _, flags, method = fields[3:7]
        crc, compressed, size, n_name, n_extra, n_comment, disk = fields[9:16]
        attributes, offset = fields[17:]
        left -= _CENTRAL.size + n_name + n_extra + n_comment
        if left < 0:
            raise BundleError("the zip's directory is damaged", "malformed")
        name = decode_name(file.read(n_name))
        compressed, size, offset, disk = _zip64_sizes(name, file.read(n_extra), size, compressed, offset, disk)
        file.seek(n_comment, os.SEEK_CUR)
        if version > _NEWEST:
            raise BundleError(f"{show(name)} needs a newer version of zip than is read here", "malformed")
        entry = Entry(name, flags, method, crc, compressed, size, offset, attributes >> 16)
        check_entry(replace(entry, mode=file_mode(entry)) if of_folder and size else entry)
        if disk:
            raise BundleError(f"{show(name)} is in another part of the zip, which is not accepted", "malformed")
        yield entry
    if left:
        raise BundleError("the zip's directory has more in it than it says", "malformed")


def decode_name(raw: bytes) -> str:
    if len(raw) > _LONGEST_NAME:
        shown = show(raw.decode("utf-8", "replace"))
        raise BundleError(f"{shown}: a name of {len(raw):,} bytes, accepted are {_LONGEST_NAME:,}", "name")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BundleError(f"{show(raw.decode('utf-8', 'replace'))}: a name that is not UTF-8", "name") from None


def _zip64_sizes(
    name: str, extra: bytes, size: int, compressed: int, offset: int, disk: int
) -> tuple[int, int, int, int]:
    """The sizes that do not fit into 32 bits are in an extra field: only those, and in this order."""
    values = [size, compressed, offset]
    wanting = [index for index, value in enumerate(values) if value == 0xFFFFFFFF]
    fields = _extra_fields(name, extra)
    wide = [body for kind, body in fields if kind == 1]
    if len(wide) > 1 or (wanting and (not wide or len(wide[0]) < 8 * len(wanting))):
        raise BundleError(f"{show(name)}: its size (zip64) is missing or given twice", "malformed")
    for position, index in enumerate(wanting):
        (values[index],) = struct.unpack_from("<Q", wide[0], 8 * position)
    return values[1], values[0], values[2], 0 if wide and disk == 0xFFFF else disk


def _extra_fields(name: str, extra: bytes) -> list[tuple[int, bytes]]:
    fields = []
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        at += 4 + length
        if at > len(extra):
            raise BundleError(f"{show(name)}: its extra field is damaged", "malformed")
        fields.append((kind, extra[at - length : at]))
    return fields


def file_mode(entry: Entry) -> int:
    """Its mode; that of a file for a link."""
    return stat.S_IFREG | stat.S_IMODE(entry.mode) if entry.is_link else entry.mode


def check_entry(entry: Entry) -> None:
    """Check one entry by itself: it must be a plain file or folder, not encrypted, compressed by a known method."""
    if entry.flags & _ENCRYPTED:
        raise BundleError(f"{show(entry.name)} is encrypted: send the code without a password", "encrypted")
    if entry.method not in _METHODS or entry.flags & _PATCHES:
        accepted = " and ".join(_METHODS.values())
        raise BundleError(f"{show(entry.name)}: compression method {entry.method}, accepted are {accepted}", "method")
    kind = stat.S_IFMT(entry.mode)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = _KINDS.get(kind, "no plain file")
        raise BundleError(f"{show(entry.name)} is {what}: accepted are files and folders", "special_file")
    if kind and entry.is_folder != (kind == stat.S_IFDIR):
        raise BundleError(f"{show(entry.name)}: its name and its kind disagree on whether it is a folder", "malformed")
    if entry.is_folder and entry.size:
        raise BundleError(f"{show(entry.name)} is a folder with content", "malformed")
    if entry.method == 0 and entry.size != entry.compressed:
        raise BundleError(f"{show(entry.name)}: its two sizes disagree", "malformed")


def data_start(file: BinaryIO, entry: Entry, directory: Directory) -> int:
    """The start of an entry's data, after a local header that must agree with the directory."""
    if entry.offset + _LOCAL.size > directory.offset:
        raise BundleError(f"{show(entry.name)} lies outside the zip's data", "malformed")
    head = _read(file, entry.offset, _LOCAL.size)
    magic, _, _, flags, method, _, _, crc, compressed, size, n_name, n_extra = _LOCAL.unpack(head)
    if magic != b"PK\x03\x04":
        raise BundleError(f"{show(entry.name)} is not where the zip's directory says", "malformed")
    name = file.read(n_name)
    # Sizes may follow the data (a stream could not know them) or stand in the extra field (zip64).
    follow, zip64 = flags & _SIZES_FOLLOW, 0xFFFFFFFF in (compressed, size)
    same = (
        name == entry.name.encode()
        and method == entry.method
        and (flags ^ entry.flags) & (_ENCRYPTED | _PATCHES | _UTF8) == 0
        and (follow or crc == entry.crc)
        and (follow or zip64 or (compressed, size) == (entry.compressed, entry.size))
    )
    if not same:
        raise BundleError(f"{show(entry.name)}: the zip's directory and the file's own header disagree", "malformed")
    start: int = entry.offset + _LOCAL.size + n_name + n_extra
    if start + entry.compressed > directory.offset:
        raise BundleError(f"{show(entry.name)} lies outside the zip's data", "malformed")
    return start


def check_name(name: str) -> str:
    """A path inside the zip, without meaningless parts ('./', '//'); it must stay inside wherever it is unpacked."""
    shown = show(name)
    if _CONTROL.search(name):
        raise BundleError(f"{shown}: a control character in a name", "name")
    if "\\" in name:
        raise BundleError(f"{shown}: a backslash in a name: folders are separated by '/'", "name")
    if name.startswith("/") or name[1:2] == ":":
        raise BundleError(f"{shown} is an absolute path: zip the folder from inside it", "absolute_path")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise BundleError(f"{shown} leads out of the folder that it is unpacked in", "path_traversal")
    if not parts and not name.endswith("/"):
        raise BundleError("a file without a name", "name")
    long = next((part for part in parts if len(part.encode()) > _LONGEST_PART), None)
    if long:
        size = len(long.encode())
        raise BundleError(f"{shown}: a name of {size} bytes, accepted are {_LONGEST_PART}", "name")
    return "/".join(parts)


def show(name: str) -> str:
    """A name for a message: short and printable."""
    return repr(name if len(name) <= 80 else name[:77] + "…")


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    data = file.read(size)
    if len(data) < size:
        raise BundleError("the zip is cut off", "truncated")
    return data
