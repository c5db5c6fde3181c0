"""Data stores and their content; secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from weft.models.base import Json, ServerValue, parse_time


@dataclass(frozen=True)
class ObjectInfo(ServerValue):
    """An object in a data store; ``size`` in bytes."""

    key: str
    size: int
    modified: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> ObjectInfo:
        return cls(str(data["key"]), int(data.get("size") or 0), parse_time(data.get("modified")), raw=data)


@dataclass(frozen=True)
class Datastore(ServerValue):
    """An S3 endpoint whose credentials the server keeps; they never come back.

    ``user_name`` is None in the installation's own store, which issues temporary keys for each use.
    """

    name: str
    endpoint: str
    region: str | None = None
    user_name: str | None = None

    @classmethod
    def from_json(cls, data: Json) -> Datastore:
        return cls(
            str(data["name"]), str(data.get("endpoint") or ""), data.get("region"), data.get("user_name"), raw=data
        )


@dataclass(frozen=True)
class Secret(ServerValue):
    """The name of a secret that the server keeps; its value never comes back."""

    name: str
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> Secret:
        return cls(
            name=str(data["name"]),
            created_at=parse_time(data.get("created_at") or data.get("created")),
            updated_at=parse_time(data.get("updated_at") or data.get("updated")),
            raw=data,
        )
