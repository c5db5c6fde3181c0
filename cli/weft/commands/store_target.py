"""A data store as the target of ``weft data prepare``; it implements ``weft_data.targets.Target``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from weft.client import Client
from weft.errors import WeftError
from weft.resources.data import Item, Place
from weft_data.units import Written


class StoreTarget:
    """A container of a data store, or a prefix in it. Files go through the server, as with ``weft data put``.

    The state folder is in the user's cache.

    Raises:
        WeftError: the place names no container, the data store refuses, or the server can't be reached.
    """

    def __init__(self, client: Client, place: Place) -> None:
        if not place.container:
            raise WeftError(f"{place} names no container; expected DATASTORE:CONTAINER[/PREFIX]")
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
        return {found.key.removeprefix(self._base): found.size for found in self._data.objects(under)}

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
        items = [Item(folder / file.name, self._base + file.name, file.bytes) for file in files]
        if items:
            self._data.put(folder, self._place, items=items)
        for item in items:
            item.path.unlink()
