"""Where a data set goes: the contract of a target, a folder on this machine, and the state that a target keeps.

Each target has a *state* folder on this machine. It records which units are done, so that the same command continues
after an interruption. For a folder, the state is inside the target itself.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from weft_data.errors import DatasetError
from weft_data.units import Written

try:
    import fcntl
except ImportError:  # Windows: nothing prevents two runs on one target
    fcntl = None  # type: ignore[assignment]

DATASET, REPORT = "dataset.json", "report.json"
STATE = ".weft-prepare"


class Target(Protocol):
    """A place where files are published under names relative to the data set; ``state`` is its state folder."""

    state: Path

    def __str__(self) -> str: ...

    def files(self) -> dict[str, int]:
        """The sizes, in bytes, of the files that are there, by name."""
        ...

    def read(self, name: str) -> bytes:
        """The content of a small file that is there."""
        ...

    def publish(self, folder: Path, files: Sequence[Written]) -> None:
        """Move files from ``folder`` to the target, each completely or not at all.

        Whatever a target raises ends the run; the same command continues later.
        """
        ...


class Folder:
    """A folder on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / STATE

    def __str__(self) -> str:
        return str(self.path)

    def files(self) -> dict[str, int]:
        found = {}
        for folder, folders, names in os.walk(self.path):
            if Path(folder) == self.path and STATE in folders:
                folders.remove(STATE)
            for name in names:
                path = Path(folder, name)
                found[path.relative_to(self.path).as_posix()] = path.lstat().st_size
        return found

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def publish(self, folder: Path, files: Sequence[Written]) -> None:
        for file in files:
            source, target = folder / file.name, self.path / file.name
            if file.sha256:  # only shards have it; one sync for a thousand images costs nothing
                _sync(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Lock the state folder for this process.

    Raises:
        DatasetError: another process has locked it.
    """
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise DatasetError(f"another process is preparing this data set just now ({state / 'lock'})") from None
        yield


def write_json(path: Path, value: Any) -> int:
    """Write the value to a file, which appears only when it is complete; returns its size in bytes."""
    content = json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n"
    begun = path.with_name(path.name + ".new")
    begun.write_bytes(content)
    _sync(begun)
    begun.replace(path)
    return len(content)


def remove(folder: Path) -> None:
    """Remove a folder with all its content; a missing folder is not an error."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
