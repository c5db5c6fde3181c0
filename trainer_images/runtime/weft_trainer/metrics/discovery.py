"""Finds the files that sources of metrics read, at a cost that the size of the folders does not set."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from weft_trainer.growing import Found

_DEPTH = 12
_FOLDERS = 2_000
_FILES = 2_000
_SKIPPED = frozenset({"__pycache__", ".git", "node_modules", "site-packages"})
_TICK_NS = 2_000_000_000
"""A folder that changed so recently may change again without a new time stamp, so it is read again."""
_REST = 20
"""The pause before a folder is read again, as a multiple of the time that reading it took, however often it changes."""


class _Folder:
    """A folder as it was read last.

    Args:
        stamp: its inode and time of change then; ``(-1, -1)``: it has to be read again.
    """

    def __init__(self, stamp: tuple[int, int] = (-1, -1)) -> None:
        self.stamp = stamp
        self.due = 0.0  # it is not read again before this
        self.folders: list[str] = []
        self.files: list[str] = []


class Discovery:
    """The wanted files below some folders. A folder is read again only after it has changed.

    A file belongs to the innermost of the watched folders. Links are not followed. Of the folders and files below one
    watched folder, the first 2,000 count, those nearest to it first.

    Args:
        roots: the watched folders.
        wanted: whether a file of this name is wanted.
        say: writes a line into the job's log.
    """

    def __init__(self, roots: Sequence[Path], wanted: Callable[[str], bool], say: Callable[[str], None]) -> None:
        inner = sorted(dict.fromkeys(roots), key=lambda root: len(root.parts), reverse=True)
        self._roots = {str(root): root for root in inner}
        self._wanted = wanted
        self._say = say
        self._known: dict[str, _Folder] = {}
        self._told = False
        self.ends = False
        """The program has ended, so no folder rests any more."""

    def find(self) -> list[Found]:
        found: list[Found] = []
        known: dict[str, _Folder] = {}
        for root in self._roots:
            self._find(root, known, found)
        self._known = known
        return found

    def _find(self, root: str, known: dict[str, _Folder], found: list[Found]) -> None:
        waiting = deque([(root, 0)])
        folders = files = 0
        while waiting:
            path, depth = waiting.popleft()
            if folders == _FOLDERS or files >= _FILES:
                self._tell(root)
                return
            folder = self._read(path)
            if folder is None:
                continue
            known[path] = folder
            folders += 1
            for name in folder.files[: _FILES - files]:
                try:
                    status = os.lstat(f"{path}/{name}")
                except OSError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    files += 1
                    found.append(Found(self._roots[root], Path(path, name), status))
            if depth < _DEPTH:
                below = (f"{path}/{name}" for name in folder.folders)
                waiting.extend((inner, depth + 1) for inner in below if inner not in self._roots)

    def _read(self, path: str) -> _Folder | None:
        """The entries of a folder; None: it is not a folder."""
        try:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                return None
            folder = self._known.get(path) or _Folder()
            stamp = (status.st_ino, status.st_mtime_ns)
            if stamp == folder.stamp or (time.monotonic() < folder.due and not self.ends):
                return folder
            return self._scan(path, stamp)
        except OSError:
            return None

    def _scan(self, path: str, stamp: tuple[int, int]) -> _Folder:
        began = time.monotonic()
        settled = time.time_ns() - stamp[1] > _TICK_NS
        folder = _Folder(stamp if settled else (-1, -1))
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _SKIPPED and len(folder.folders) < _FOLDERS:
                        folder.folders.append(entry.name)
                elif self._wanted(entry.name) and len(folder.files) < _FILES:
                    folder.files.append(entry.name)
        folder.folders.sort()
        folder.files.sort()
        now = time.monotonic()
        folder.due = now + _REST * (now - began)
        return folder

    def _tell(self, root: str) -> None:
        if not self._told:
            self._told = True
            self._say(
                f"weft: metrics: {Path(root).name}/ has too many folders to seek TensorBoard's files in all of them; "
                "evaluation_metrics: {type: tensorboard, in: FOLDER} names the folder of the files"
            )
