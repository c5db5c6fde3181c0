"""Saved views, and what users have held of the engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qs

from weft.models.base import Json, ServerValue, parse_time


@dataclass(frozen=True)
class View(ServerValue):
    """A list of jobs that ``user`` has saved under a name. ``query`` is that of the list's URL in the dashboard."""

    name: str
    query: str
    user: str = ""
    updated_at: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> View:
        return cls(
            name=str(data["name"]),
            query=data.get("query") or "",
            user=data.get("user") or "",
            updated_at=parse_time(data.get("updated_at")),
            raw=data,
        )

    @property
    def search(self) -> Mapping[str, list[str]]:
        """The query's values by name: filters such as ``state``, ``sort``, and the columns (``col``)."""
        return parse_qs(self.query)


@dataclass(frozen=True)
class UserUse(ServerValue):
    """The resources that a user's attempts have held in a project: CPUs × hours, and GPUs × hours."""

    project: str
    user: str
    attempts: int = 0
    cpu_hours: float = 0.0
    gpu_hours: float = 0.0

    @classmethod
    def from_json(cls, data: Json) -> UserUse:
        return cls(
            project=str(data["project"]),
            user=str(data["user"]),
            attempts=int(data.get("attempts") or 0),
            cpu_hours=float(data.get("cpu_hours") or 0.0),
            gpu_hours=float(data.get("gpu_hours") or 0.0),
            raw=data,
        )


@dataclass(frozen=True)
class Usage(ServerValue):
    """The use of the engines in a span of time. ``raw`` also has ``engines``, the course of their use."""

    since: datetime | None
    until: datetime | None
    users: tuple[UserUse, ...] = ()
    """The largest use first."""

    @classmethod
    def from_json(cls, data: Json) -> Usage:
        return cls(
            since=parse_time(data.get("since")),
            until=parse_time(data.get("until")),
            users=tuple(UserUse.from_json(row) for row in data.get("people") or ()),
            raw=data,
        )
