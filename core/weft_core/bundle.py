"""Code bundles: the zip of a job's training code, checked before anything is done with it.

Checked by streaming: memory is bounded by the number of entries, never by what they hold.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, BinaryIO, cast

from weft_core.command import Named, named_paths
from weft_core.settings import LimitSettings
from weft_core.zipcopy import copy_entries
from weft_core.zipscan import (
    BundleError,
    Directory,
    Entry,
    check_name,
    data_start,
    find_directory,
    read_entries,
    show,
)

__all__ = ["BundleError", "BundleInfo", "check_bundle", "normalise_bundle"]

_CHUNK = 1 << 18
_OUTSIDE = ("/", "../")
_RATIO_COUNTS_FROM = 1 << 20
"""Uncompressed bytes below which any ratio is fine."""


@dataclass(frozen=True)
class BundleInfo:
    """An accepted bundle."""

    sha256: str
    size: int
    """Bytes of the zip itself."""
    files: int
    """Files in it; folders don't count."""


def check_bundle(source: Path | IO[bytes], limits: LimitSettings) -> BundleInfo:
    """Check a zip as if its sender meant harm; every byte of it is inflated once, and thrown away.

    Args:
        source: a path, or a seekable file, which is left at its beginning.

    Raises:
        BundleError: the first thing that is wrong with it.
    """
    with _opened(source) as file:
        size = _size(file, limits)
        directory = find_directory(file, size)
        entries = _read_all(file, directory, limits)
        _check_tree(entry.name for entry in entries)
        starts = _check_layout(file, directory, entries)
        for entry, start in zip(entries, starts, strict=True):
            for _ in _inflate(file, entry, start):
                pass
        return BundleInfo(_sha256(file), size, sum(not entry.is_folder for entry in entries))


def normalise_bundle(
    source: Path | IO[bytes], target: Path, limits: LimitSettings, *, of_folder: bool = False, command: str = ""
) -> None:
    """Write the content of ``source`` to ``target`` as a bundle with relative paths. The bundle must still be checked.

    FfDL's client writes whole paths (``/home/u/model/train.py``, ``../model/train.py``, ``model/train.py``) when it is
    given a folder with a slash at its end. Their common folder is removed from the paths; any other zip is copied as it
    is. If that would hide the files that ``command`` names, only as much of the folder is removed as lets the command
    find them.

    Args:
        command: the manifest's command.
        of_folder: FfDL's client is known to have made the zip from a folder. It writes no entry for that folder itself,
            so an entry is always a folder inside it. It packs the target of a link as an entry of the link's kind.

    Raises:
        BundleError: something else is wrong with it; ``target`` does not exist then.
    """
    with _opened(source) as file:
        directory = find_directory(file, _size(file, limits))
        entries = _read_all(file, directory, limits, of_folder=of_folder)
        outside = [entry for entry in entries if entry.name.startswith(_OUTSIDE)]
        if outside and len(outside) < len(entries):
            shown = show(outside[0].name)
            raise BundleError(f"{shown} is an absolute path and others are relative: zip one folder", "absolute_path")
        try:
            root = _taken_off(entries, of_folder, bool(outside), named_paths(command))
            if outside or root or any(entry.is_link for entry in entries):
                starts = _check_layout(file, directory, entries)
                names = _relative_names(entries, root)
                _check_tree(name for name in names if name)
                placed = zip(entries, names, starts, strict=True)
                copy_entries(file, ((entry, name, start) for entry, name, start in placed if name), target)
            else:
                file.seek(0)
                with target.open("wb") as copy:
                    shutil.copyfileobj(file, copy, _CHUNK)
        except BaseException:
            target.unlink(missing_ok=True)
            raise


@contextmanager
def _opened(source: Path | IO[bytes]) -> Iterator[BinaryIO]:
    if isinstance(source, Path):
        with source.open("rb") as file:
            yield file
        return
    try:
        yield cast(BinaryIO, source)
    finally:
        source.seek(0)


def _size(file: BinaryIO, limits: LimitSettings) -> int:
    size = file.seek(0, os.SEEK_END)
    if size > limits.bundle_bytes:
        raise BundleError(f"the zip has {size:,} bytes, accepted are {limits.bundle_bytes:,}", "too_large")
    return size


def _read_all(file: BinaryIO, directory: Directory, limits: LimitSettings, *, of_folder: bool = False) -> list[Entry]:
    """The entries, if neither their number nor their declared sizes exceed a limit."""
    if directory.entries > limits.bundle_files:
        most = f"{limits.bundle_files:,}"
        raise BundleError(f"the zip has {directory.entries:,} files and folders, accepted are {most}", "too_many_files")
    entries = []
    unpacked = 0
    for entry in read_entries(file, directory, of_folder=of_folder):
        entries.append(entry)
        unpacked += entry.size
        if unpacked > limits.bundle_unpacked_bytes:
            most = f"{limits.bundle_unpacked_bytes:,}"
            raise BundleError(f"the zip unpacks to {unpacked:,} bytes or more, accepted are {most}", "unpacked_size")
        if entry.size > max(_RATIO_COUNTS_FROM, entry.compressed * limits.bundle_ratio):
            ratio = f"{entry.size // max(entry.compressed, 1):,}:1"
            raise BundleError(
                f"{show(entry.name)} unpacks to {entry.size:,} bytes, {ratio} of its size in the zip: accepted is "
                f"{limits.bundle_ratio}:1",
                "ratio",
            )
    if all(entry.is_folder for entry in entries):
        raise BundleError("the zip holds no file", "empty")
    return entries


def _check_tree(names: Iterable[str]) -> None:
    """No path twice, and no file where another path needs a folder."""
    # With NUL for '/', whatever lies below a path sorts right behind it.
    paths = sorted((check_name(name).replace("/", "\0"), name) for name in names)
    for (path, name), (next_path, next_name) in pairwise(paths):
        if path == next_path and name.endswith("/") == next_name.endswith("/"):
            raise BundleError(f"{show(name)} is in the zip twice", "duplicate")
        if path == next_path or (not name.endswith("/") and next_path.startswith(path + "\0")):
            shown = f"{show(name)} and {show(next_name)}"
            raise BundleError(f"{shown}: one is a file where the other needs a folder", "conflict")


def _check_layout(file: BinaryIO, directory: Directory, entries: list[Entry]) -> list[int]:
    """The start of each entry's data. No two entries may share bytes, or few bytes could unpack to many files."""
    starts = [data_start(file, entry, directory) for entry in entries]
    spans = sorted(zip(entries, starts, strict=True), key=lambda span: span[0].offset)
    if spans[0][0].offset:
        raise BundleError("there is data before the beginning of the zip", "malformed")
    for (entry, start), (following, _) in pairwise(spans):
        if start + entry.compressed > following.offset:
            raise BundleError(f"{show(entry.name)} and {show(following.name)} share bytes of the zip", "overlap")
    return starts


def _inflate(file: BinaryIO, entry: Entry, start: int) -> Iterator[bytes]:
    """An entry's content. It must be exactly as the directory declared it, because the limits were checked against
    that."""
    damaged = BundleError(f"{show(entry.name)} is damaged: its compressed data can't be read", "damaged")
    inflater = zlib.decompressobj(-zlib.MAX_WBITS) if entry.method else None
    file.seek(start)
    left, produced, crc = entry.compressed, 0, 0
    pending = b""
    # zlib may hold output back after it took the last input, so only its own end ends it.
    while left or pending or (inflater and not inflater.eof):
        if not pending:
            pending = file.read(min(_CHUNK, left))
            left -= len(pending)
        try:
            data = inflater.decompress(pending, _CHUNK) if inflater else pending
        except zlib.error:
            raise damaged from None
        if not data and not pending:
            raise damaged
        pending = inflater.unconsumed_tail if inflater else b""
        if inflater and inflater.eof and (inflater.unused_data or left):
            raise damaged
        produced += len(data)
        if produced > entry.size:
            raise BundleError(f"{show(entry.name)} unpacks to more than the {entry.size:,} bytes that it says", "ratio")
        crc = zlib.crc32(data, crc)
        yield data
    if produced != entry.size or crc != entry.crc:
        raise damaged


def _inside(entry: Entry) -> str:
    """Its path below a root of our own. Raises BundleError when it leads out of that, too."""
    name = entry.name
    while name.startswith(_OUTSIDE):
        name = name.removeprefix("..").lstrip("/")
    return "/" + check_name(name)


def _root(entries: list[Entry], of_folder: bool) -> str:
    """The folder that all of them are in; '' when they have none in common."""
    names = [_inside(entry) for entry in entries]
    folders = [name if entry.is_folder else posixpath.dirname(name) for name, entry in zip(names, entries, strict=True)]
    root = posixpath.commonpath(folders).rstrip("/")
    while of_folder and root in names:
        root = posixpath.dirname(root).rstrip("/")
    return root


def _taken_off(entries: list[Entry], of_folder: bool, outside: bool, named: list[Named]) -> str:
    """How much of the common folder is removed: usually all of it, or nothing if the paths are good already; another
    part if the command then finds more of the files that it names."""
    if not (of_folder or outside or named):
        return ""
    root = _root(entries, of_folder)
    usual = root if of_folder or outside else ""
    files = {_inside(entry) for entry in entries if not entry.is_folder} if root and named else set()
    folders = {folder for file in files for folder in _parents(file)}

    def found(taken: str) -> int:
        return sum(f"{taken}/{path.path}" in (folders if path.is_folder else files) for path in set(named))

    return max([usual, root, *_parents(root), ""], key=found)


def _parents(path: str) -> Iterator[str]:
    """The folders above ``/a/b/c``: ``/a/b``, ``/a``."""
    while path := posixpath.dirname(path).rstrip("/"):
        yield path


def _relative_names(entries: list[Entry], root: str) -> list[str]:
    """The entries' names below ``root``; that folder itself becomes ''."""
    names = [_inside(entry) for entry in entries]
    return [
        name[len(root) + 1 :] + ("/" if entry.is_folder and name != root else "")
        for name, entry in zip(names, entries, strict=True)
    ]


def _sha256(file: BinaryIO) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while data := file.read(_CHUNK):
        digest.update(data)
    return digest.hexdigest()
