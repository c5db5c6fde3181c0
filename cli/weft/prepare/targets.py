"""Where a data set goes: a folder of this machine, or a container of a data store.

Each has a *state* folder on this machine, which remembers what is done, so that the same command goes on after an end
of any kind: in the target folder itself, or, for a data store, in the user's cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from weft.client import Client
from weft.data import Item as Sent
from weft.data import Place
from weft.errors import DatasetError
from weft.prepare.units import Written

try:
    import fcntl
except ImportError:  # Windows: two runs on one target are the user's own care
    fcntl = None  # type: ignore[assignment]

DATASET, REPORT = "dataset.json", "report.json"
STATE = ".weft-prepare"


class Target(Protocol):
    """Where files are published under names relative to the data set; ``state`` is its folder on this machine."""

    state: Path

    def __str__(self) -> str: ...

    def files(self) -> dict[str, int]:
        """What is there: sizes in bytes by name."""
        ...

    def read(self, name: str) -> bytes:
        """A small file that is there."""
        ...

    def publish(self, folder: Path, files: Sequence[Written]) -> None:
        """Put files of ``folder`` there, each whole or not at all; they are gone from ``folder`` afterwards.

        Raises:
            WeftError: it can't.
        """
        ...


class Folder:
    """A folder of this machine."""

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
            if file.sha256:  # of shards, not of each image: a sync a thousand images costs nothing
                _sync(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)


class Store:
    """A container of a data store, or what is under a prefix of it; through the server, as ``weft data put`` does."""

    def __init__(self, client: Client, place: Place) -> None:
        if not place.container:
            raise DatasetError(f"{place} names no container; expected DATASTORE:CONTAINER[/PREFIX]")
        self._data = client.data
        self._place = place
        self._base = place.prefix.rstrip("/") + "/" if place.prefix.rstrip("/") else ""
        where = hashlib.sha256(f"{client.url} {place.store}:{place.container}/{self._base}".encode()).hexdigest()[:16]
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self.state = Path(cache) / "weft" / "prepare" / where
        self._data.create(Place(place.store, place.container))

    def __str__(self) -> str:
        return str(self._place)

    def files(self) -> dict[str, int]:
        under = Place(self._place.store, self._place.container, self._base)
        return {one.key.removeprefix(self._base): one.size for one in self._data.objects(under)}

    def read(self, name: str) -> bytes:
        self.state.mkdir(parents=True, exist_ok=True)
        path = self.state / f"{name}.read"
        path.unlink(missing_ok=True)
        self._data.get(Place(self._place.store, self._place.container, self._base + name), path)
        try:
            return path.read_bytes()
        finally:
            path.unlink()

    def publish(self, folder: Path, files: Sequence[Written]) -> None:
        items = [Sent(folder / one.name, self._base + one.name, one.bytes) for one in files]
        if items:
            self._data.put(folder, self._place, items=items)
        for item in items:
            item.path.unlink()


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Holds the state folder for this process. Raises DatasetError while another one has it."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise DatasetError(f"another process is preparing this data set just now ({state / 'lock'})") from None
        yield


def write_json(path: Path, value: Any) -> int:
    """The value as a file that is whole whenever it is there; returns its size in bytes."""
    content = json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n"
    begun = path.with_name(path.name + ".new")
    begun.write_bytes(content)
    _sync(begun)
    begun.replace(path)
    return len(content)


def remove(folder: Path) -> None:
    """A folder and all in it, whether it is there or not."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
