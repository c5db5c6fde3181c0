"""Run in the place of the user's program, with nothing but the standard library: packs files into a tar on standard
output, or unpacks one from standard input. Its first argument is ``get``, ``put`` or ``events`` (TensorBoard's event
files), the second a path, relative to the folder of the code; ``events`` takes several. ``$RESULT_DIR`` and the like
mean the program's variables."""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO

_BUFFER = 1 << 20
_MOST_EVENT_FILES = 30
_LARGEST_EVENT_FILE = 64 << 20
_MOST_FOLDERS = 20_000


def _get(path: str) -> None:
    """The tar's first entry is the file or folder itself."""
    place = os.path.abspath(path)  # a slash at the end or `.` would leave no name
    if not os.path.lexists(place):
        sys.exit(f"there is no {path} in this learner")
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", bufsize=_BUFFER, format=tarfile.PAX_FORMAT) as archive:
        _add(archive, os.path.realpath(place), os.path.basename(place) or "root")


def _add(archive: tarfile.TarFile, path: str, name: str) -> None:
    """One entry, and those below it. A file that goes away meanwhile is left out; links stay links."""
    try:
        entry = archive.gettarinfo(path, name)
        archive.inodes.clear()  # type: ignore[attr-defined]  # a second name of a file is a file of its own
        if entry is None or not (entry.isreg() or entry.isdir() or entry.issym()):
            print(f"{path} is no file: left out", file=sys.stderr)
            return
        if entry.isreg():
            with open(path, "rb") as file:
                _add_file(archive, entry, file)
            return
        archive.addfile(entry)
        names = sorted(os.listdir(path)) if entry.isdir() else []
    except OSError as error:
        print(f"{path}: {error.strerror}: left out", file=sys.stderr)
        return
    for child in names:
        _add(archive, os.path.join(path, child), f"{name}/{child}")


def _add_file(archive: tarfile.TarFile, entry: tarfile.TarInfo, file: BinaryIO) -> None:
    """A program may write the file meanwhile. The entry keeps the size of now, and missing bytes at its end become
    zeros."""
    entry.size = os.fstat(file.fileno()).st_size
    padded: Any = _Padded(file)
    archive.addfile(entry, padded)


def _events(folders: list[str]) -> None:
    """The newest event files. A name is relative to its folder; of two files with the same name, the first counts."""
    found: dict[str, str] = {}
    for path in folders:
        root = os.path.realpath(_expanded(path))
        for place in _event_files(root):
            found.setdefault(os.path.relpath(place, root), place)
    newest = sorted(found, key=lambda name: os.lstat(found[name]).st_mtime, reverse=True)
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", bufsize=_BUFFER, format=tarfile.PAX_FORMAT) as archive:
        for at, name in enumerate(newest):
            if at >= _MOST_EVENT_FILES or os.lstat(found[name]).st_size > _LARGEST_EVENT_FILE:
                print(f"{name}: left out", file=sys.stderr)
            else:
                _add(archive, found[name], name)


def _event_files(root: str) -> Iterator[str]:
    for walked, (folder, names, files) in enumerate(os.walk(root)):
        if walked >= _MOST_FOLDERS:
            print(f"{root} has too many folders: the rest is left out", file=sys.stderr)
            return
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield from (os.path.join(folder, name) for name in files if "tfevents" in name)


class _Padded:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read(size).ljust(size, b"\0")


def _put(path: str) -> None:
    """``path`` is a folder, into which the tar's entries go, or the new name of its first entry."""
    into_folder = os.path.isdir(path)
    folder = path if into_folder else os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        sys.exit(f"there is no folder {folder} in this learner")
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|", bufsize=_BUFFER) as archive:
        for entry in archive:
            if not into_folder:
                _, slash, rest = entry.name.partition("/")
                entry.name = os.path.basename(os.path.abspath(path)) + slash + rest
            if hasattr(tarfile, "data_filter"):
                archive.extract(entry, folder, filter="data")
            else:
                archive.extract(entry, folder, set_attrs=False)


def _expanded(path: str) -> str:
    return os.path.expanduser(os.path.expandvars(path))


def main() -> None:
    kind, path, *more = sys.argv[1:]
    path = _expanded(path)
    try:
        if kind == "events":
            _events([path, *more])
        else:
            (_get if kind == "get" else _put)(path)
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(1)
    except (OSError, tarfile.TarError) as error:
        sys.exit(f"{path}: {error}")


if __name__ == "__main__":
    main()
