"""The files that a program leaves in the job's folder: those that the manifest's ``results`` name, and the others.

A leftover is a file that is new, or has changed since the program started. Bytecode is none. The report is
complete: it also names the files that can't be stored, with the reason.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from weft_trainer.globs import regex
from weft_trainer.spec import LeftoverSpec
from weft_trainer.words import size

_MOST_ENTRIES = 200_000
"""The most files that are examined, those at the top first. The files that ``results`` names are found among any
number."""
_MOST_KEPT = 10_000
_MOST_CHANGES = 2_000
"""The most entries that are examined to learn whether there is any leftover at all."""
_SMALL_SHARE = 100
"""A file of at most this fraction of the limit is small."""
_LONGEST_KEY = 700
"""Bytes; S3 takes 1,024, of which the job's own prefix needs some."""
_LONGEST_REASON = 500
_LONGEST_LINE = 20_000
_LISTED = 10
_MOST_PATTERNS = 30
_SAME_SUFFIX = 3
"""More files than these with one suffix get one pattern."""
_LEARNER = re.compile(r"learner-\d+/")
_BYTECODE = (".pyc", ".pyo")
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./*?-]*")

Stamp = tuple[int, int, int]
"""Size, time of change and inode."""


class LeftFile(NamedTuple):
    """A file of the job's folder, by its path there."""

    key: str
    path: Path
    size: int
    changed: int


class Leftovers:
    """The files that the program has left in the job's folder.

    Attributes:
        named: the files that ``results`` names.
        kept: leftovers to be kept.
        lost: leftovers that are not kept, by the reason.
        unmatched: patterns of ``results`` that match no file.
        line: the manifest's line that would store all leftovers.
        place: the folder of the results for ``kept``.
        uploads: ``named`` and ``kept``, by their keys among the results.
    """

    def __init__(self) -> None:
        self.named: list[LeftFile] = []
        self.kept: list[LeftFile] = []
        self.lost: dict[str, list[LeftFile]] = {}
        self.unmatched: list[str] = []
        self.line = ""
        self.place = ""
        self.uploads: list[tuple[str, Path]] = []

    def fail(self, reason: str) -> None:
        """Record that no file could be stored."""
        files = self.named + self.kept
        if files:
            self.lost[f"the results can't be stored: {reason[:_LONGEST_REASON]}"] = files
        self.named, self.kept, self.uploads = [], [], []

    def report(self) -> dict[str, Any] | None:
        """For the service; None: there is nothing to tell."""
        if not (self.named or self.kept or self.lost or self.unmatched):
            return None
        lost = [_summary(files) | {"reason": reason} for reason, files in self.lost.items()]
        return {
            "place": self.place,
            "line": self.line,
            "named": _summary(self.named),
            "kept": _summary(self.kept),
            "lost": lost,
            "unmatched": self.unmatched,
        }


class JobFolder:
    """The job's folder, and its content when the program started.

    Args:
        folder: the job's.
        home: all of the learner's folders. The targets of links there are stored, or brought, by other means.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        self._home = home
        self._before: dict[str, Stamp] = {}

    def begin(self) -> None:
        """The program starts."""
        self._before = {key: _stamp(status) for key, status in _walk(self._folder)}

    def has_changed(self) -> bool:
        """Whether there is a leftover among the first files."""
        walk = _walk(self._folder)
        return any(self._is_leftover(key, status) for _, (key, status) in zip(range(_MOST_CHANGES), walk))

    def _is_leftover(self, key: str, status: os.stat_result) -> bool:
        return self._before.get(key) != _stamp(status) and not key.endswith(_BYTECODE)

    def leftovers(self, spec: LeftoverSpec, taken: Iterable[str], prefix: str) -> Leftovers:
        """The files to store, and the files that are not stored.

        Args:
            spec: the rules from the manifest and the settings.
            taken: keys of the results that RESULT_DIR gives.
            prefix: this learner's part of the results: empty for the leader, else ``learner-2/``.
        """
        found = Leftovers()
        keys = _Keys(taken, prefix)
        patterns = {pattern: re.compile(regex(pattern), re.DOTALL) for pattern in spec.results}
        unmatched = dict.fromkeys(spec.results)
        new: list[LeftFile] = []
        for number, (key, status) in enumerate(_walk(self._folder)):
            matching = [pattern for pattern, expression in patterns.items() if expression.fullmatch(key)]
            if not matching and number >= _MOST_ENTRIES:
                found.lost[f"the folder has more than {_MOST_ENTRIES:,} files, and these were not looked at"] = []
                if not patterns:
                    break
                continue
            if not matching and not self._is_leftover(key, status):
                continue
            file, wrong = self._file(key, status)
            if file is None:
                continue
            for pattern in matching:
                unmatched.pop(pattern, None)
            if wrong:
                found.lost.setdefault(wrong, []).append(file)
            elif matching and (stored := keys.own(file.key)):
                found.named.append(file)
                found.uploads.append((stored, file.path))
            else:
                new.append(file)
        self._keep(new, spec, found)
        found.unmatched = [] if prefix else list(unmatched)  # the leader is the one that is expected to have them
        found.place = keys.place
        found.uploads += [(keys.place + file.key, file.path) for file in found.kept]
        found.line = manifest_line(spec.results, [*new, *(file for files in found.lost.values() for file in files)])
        return found

    def _file(self, key: str, status: os.stat_result) -> tuple[LeftFile | None, str]:
        """The file behind an entry, and why it can't be stored. None: it is not the program's."""
        path = self._folder / key
        file = LeftFile(key, path, status.st_size, status.st_mtime_ns)
        if stat.S_ISLNK(status.st_mode):
            target = Path(os.path.realpath(path))
            if not target.is_relative_to(self._folder.resolve()):
                outside = target.exists() and not target.is_relative_to(self._home.resolve())
                return (file, "links out of the folder are not followed") if outside else (None, "")
            try:
                status = target.stat()
            except OSError:
                return None, ""
            if not stat.S_ISREG(status.st_mode):
                return None, ""
            file = LeftFile(key, path, status.st_size, status.st_mtime_ns)
        if not key.isprintable() or "\\" in key or len(key.encode(errors="replace")) > _LONGEST_KEY:
            return file, "their names can't be used in a store"
        if not os.access(path, os.R_OK):
            return file, "they can't be read"
        return file, ""

    def _keep(self, new: Sequence[LeftFile], spec: LeftoverSpec, found: Leftovers) -> None:
        if not new:
            return
        if not spec.keep:
            found.lost["keep_leftovers is false"] = list(new)
        elif spec.bytes <= 0:
            found.lost["this installation keeps no leftovers (limits.leftover_bytes is 0)"] = list(new)
        else:
            found.kept = choose(new, spec.bytes)
            kept = {file.key for file in found.kept}
            lost = [file for file in new if file.key not in kept]
            if lost:
                limits = f"{size(spec.bytes)} (limits.leftover_bytes) or {_MOST_KEPT:,} files"
                found.lost[f"of all leftovers no more than {limits} are kept"] = lost


def choose(files: Sequence[LeftFile], room: int) -> list[LeftFile]:
    """The leftovers that are kept within ``room`` bytes: first small files, which are logs, metrics and settings, for
    up to half of it; then the others. The newest come first, as the last model is worth more than the first."""
    newest = sorted(files, key=lambda file: (-file.changed, file.key))
    small = [file for file in newest if file.size * _SMALL_SHARE <= room]
    chosen = _fitting(small, room // 2, _MOST_KEPT)
    there = set(chosen)
    rest = [file for file in newest if file not in there]
    chosen += _fitting(rest, room - sum(file.size for file in chosen), _MOST_KEPT - len(chosen))
    return sorted(chosen, key=lambda file: file.key)


def _fitting(files: Sequence[LeftFile], room: int, most: int) -> list[LeftFile]:
    chosen: list[LeftFile] = []
    for file in files:
        if file.size <= room and len(chosen) < most:
            chosen.append(file)
            room -= file.size
    return chosen


def manifest_line(patterns: Sequence[str], files: Sequence[LeftFile]) -> str:
    """``results: [model.pt, runs/**]``: the manifest's line that would store these files; empty if there are none."""
    tops: dict[str, None] = {}
    suffixes: dict[str, list[str]] = {}
    for file in files:
        top, _, rest = file.key.partition("/")
        if rest:
            tops[f"{_escaped(top)}/**"] = None
        else:
            suffixes.setdefault(PurePosixPath(top).suffix, []).append(_escaped(top))
    for suffix, names in suffixes.items():
        if suffix and len(names) > _SAME_SUFFIX:
            names = [f"*{_escaped(suffix)}"]
        tops.update(dict.fromkeys(names))
    new = sorted(tops)
    if not new:
        return ""
    if len(new) > _MOST_PATTERNS:
        new = ["**"]
    line = f"results: [{', '.join(_in_yaml(pattern) for pattern in dict.fromkeys([*patterns, *new]))}]"
    return line if len(line) <= _LONGEST_LINE else ""


def _escaped(name: str) -> str:
    return "".join("?" if letter in "*[]\\" or not letter.isprintable() else letter for letter in name)


def _in_yaml(pattern: str) -> str:
    return pattern if _PLAIN.fullmatch(pattern) else json.dumps(pattern, ensure_ascii=False)


def _summary(files: Sequence[LeftFile]) -> dict[str, Any]:
    """Number, bytes, and the largest; each file if there are few, else by the first folder."""
    groups: dict[str, list[LeftFile]] = {}
    for file in files:
        top, slash, _ = file.key.partition("/")
        groups.setdefault(file.key if len(files) <= _LISTED or not slash else top + "/", []).append(file)
    sizes = {path: sum(file.size for file in inside) for path, inside in groups.items()}
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:_LISTED]
    listed = [{"path": _shown(path), "files": len(groups[path]), "bytes": sizes[path]} for path in largest]
    return {"files": len(files), "bytes": sum(file.size for file in files), "listed": listed}


def _shown(path: str) -> str:
    return path[:200].encode(errors="replace").decode()


class _Keys:
    """The keys of one learner's files among the results; no file takes another's place."""

    def __init__(self, taken: Iterable[str], prefix: str) -> None:
        self._files = set(taken)
        self._folders = {parent.as_posix() for key in self._files for parent in PurePosixPath(key).parents}
        self._prefix = prefix
        name = "workdir"
        while prefix + name in self._files | self._folders:
            name += "_"
        self.place = f"{prefix}{name}/"

    def own(self, key: str) -> str:
        """The key for a file that ``results`` names; empty if it is RESULT_DIR's or another learner's."""
        whole = self._prefix + key
        above = {parent.as_posix() for parent in PurePosixPath(whole).parents}
        if whole in self._files | self._folders or above & self._files:
            return ""
        if whole.startswith(("weft-manifest.", self.place)) or (not self._prefix and _LEARNER.match(key)):
            return ""
        return whole


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ino


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file and link below a folder, by its path there, but for Python's caches; those at the top first. Links are
    not followed."""
    waiting = deque([""])
    while waiting:
        inside = waiting.popleft()
        try:
            entries = os.scandir(f"{folder}/{inside}")
        except OSError:
            continue
        with entries:
            for entry in entries:
                key = inside + entry.name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name != "__pycache__":
                            waiting.append(key + "/")
                        continue
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                    yield key, status
