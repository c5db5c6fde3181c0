"""DATA_DIR of folders that lie here: nothing is copied."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from weft_embedded.run.request import RunError


class LinkedData:
    """What goes to a learner's DATA_DIR.

    One folder alone becomes DATA_DIR itself, by a link, however many files it holds. Of several, or beside data from
    S3, each file gets a link in real folders, as data stores lie side by side.

    Raises:
        RunError: two of them have a file of the same path.
    """

    def __init__(self, folders: Sequence[tuple[str, Path]], alone: bool) -> None:
        self._whole = folders[0][1] if len(folders) == 1 and alone else None
        self._files: dict[str, Path] = {}
        if self._whole is None:
            owners: dict[str, str] = {}
            for name, folder in folders:
                for key, path in _files(folder):
                    if key in owners:
                        raise RunError(f"data stores {owners[key]!r} and {name!r} both have {key!r} for DATA_DIR")
                    owners[key], self._files[key] = name, path

    def place(self, workdir: Path) -> None:
        """Before the agent makes the rest of its folders in ``workdir``."""
        target = workdir / "data"
        if self._whole is not None:
            target.symlink_to(self._whole, target_is_directory=True)
            return
        for key, path in self._files.items():
            link = target / key
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)


def _files(folder: Path) -> list[tuple[str, Path]]:
    found = []
    for parent, _, names in os.walk(folder, followlinks=True):
        for name in names:
            path = Path(parent, name)
            found.append((path.relative_to(folder).as_posix(), path))
    return found
