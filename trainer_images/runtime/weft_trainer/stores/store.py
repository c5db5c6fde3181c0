"""The interface of a store: a place in a user's S3, or the installation's own, which the API gives access to."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol


class Stored(NamedTuple):
    """An object; its key is relative to its store's prefix."""

    key: str
    size: int
    etag: str = ""
    modified: float | None = None


class Multipart(NamedTuple):
    """An object that comes in parts and does not show yet."""

    key: str
    id: str


class Store(Protocol):
    """Thread-safe. Every method raises DataError, or its subclass Temporary if the call may work later."""

    def list(self, prefix: str = "") -> builtins.list[Stored]: ...

    def read(self, key: str) -> bytes | None:
        """None: there is no such object."""

    def fetch(self, key: str, path: Path) -> None: ...

    def announce(self, keys: Sequence[str]) -> None:
        """These objects will be put next, so the store may prepare for all of them at once."""

    def put_file(self, key: str, path: Path) -> None: ...

    def put_bytes(self, key: str, data: bytes) -> None: ...

    def delete(self, keys: Sequence[str]) -> None: ...
