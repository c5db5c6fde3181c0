"""The groups of metrics from TensorBoard's files in the job's folder: a single run needs no name, several do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

_CONTAINERS = frozenset({"runs", "logs", "lightning_logs", "tb_logs", "tensorboard"})
"""Folders that programs put their runs into. Their names say nothing about a run."""
_SPLITS = frozenset({"train", "training", "validation", "valid", "val", "eval", "evaluation", "test"})
"""Folders that are parts of one run."""


class Runs:
    """Gives a group to each folder of event files, once and for all.

    The first run has the groups of its own sub-folders: ``runs/Nov23_12-00-00_host`` has none, and ``logs/train`` has
    ``train``. A later run, or each of several that are found at once, is named after its folder: ``version_1``.
    """

    def __init__(self) -> None:
        self._first: PurePosixPath | None = None
        self._groups: dict[PurePosixPath, str] = {}
        self._taken: set[str] = set()

    def take(self, group: str) -> None:
        """A file outside the job's folder has this group."""
        self._taken.add(group)

    def add(self, folders: Iterable[PurePosixPath]) -> None:
        """Give groups to the folders that have none yet; they are relative to the job's folder."""
        new = sorted(set(folders) - self._groups.keys())
        if new and not self._groups:
            bases = sorted((_base(folder) for folder in new), key=lambda base: len(base.parts))
            self._first = bases[0] if all(_is_in(base, bases[0]) for base in bases) else None
        for folder in new:
            group = next((name for name in self._names(folder) if name not in self._taken), folder.as_posix())
            self._groups[folder] = group
            self._taken.add(group)

    def group(self, folder: PurePosixPath) -> str:
        return self._groups[folder]

    def _names(self, folder: PurePosixPath) -> list[str]:
        """The names that a folder may get, best first."""
        short = [part for part in folder.parts if part not in _CONTAINERS]
        names = ["/".join(short)]
        if self._first is not None and _is_in(folder, self._first):
            names.insert(0, "/".join(folder.relative_to(self._first).parts))
        return names


def _base(folder: PurePosixPath) -> PurePosixPath:
    return folder.parent if folder.name.lower() in _SPLITS else folder


def _is_in(folder: PurePosixPath, other: PurePosixPath) -> bool:
    return folder == other or other in folder.parents
