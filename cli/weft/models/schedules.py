"""Schedules and the starts of their jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from weft.models.base import Json, ServerValue, parse_time


@dataclass(frozen=True)
class Start(ServerValue):
    """A time, a promotion or a request (``trigger``), and the job that it has started. ``state`` is STARTED, SKIPPED,
    REFUSED or DUE. ``version`` is that of the model that ``on`` names. ``job`` is None if there is none, or if it was
    deleted."""

    id: int
    trigger: str
    state: str
    due_at: datetime | None = None
    reason: str = ""
    version: int | None = None
    user: str | None = None
    job: str | None = None
    job_state: str | None = None

    @classmethod
    def from_json(cls, data: Json) -> Start:
        return cls(
            id=int(data["id"]),
            trigger=str(data.get("trigger") or ""),
            state=str(data.get("state") or ""),
            due_at=parse_time(data.get("due_at")),
            reason=data.get("reason") or "",
            version=data.get("version"),
            user=data.get("user"),
            job=data.get("job"),
            job_state=data.get("job_state"),
            raw=data,
        )


@dataclass(frozen=True)
class Schedule(ServerValue):
    """A stored manifest that starts jobs at the times of ``cron``, at promotions of ``on`` (``MODEL@STAGE``), or at
    both. ``state`` is ACTIVE or PAUSED. ``manifest`` only from :meth:`Schedules.get`; ``notes`` only from
    :meth:`Schedules.create`."""

    id: str
    name: str
    state: str
    reason: str = ""
    cron: str | None = None
    timezone: str | None = None
    overlap: str | None = None
    on: str | None = None
    next_at: datetime | None = None
    last: Start | None = None
    user: str = ""
    created_at: datetime | None = None
    manifest: Json = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, data: Json) -> Schedule:
        return cls(
            id=str(data["id"]),
            name=str(data.get("name") or ""),
            state=str(data.get("state") or ""),
            reason=data.get("reason") or "",
            cron=data.get("cron"),
            timezone=data.get("timezone"),
            overlap=data.get("overlap"),
            on=data.get("on"),
            next_at=parse_time(data.get("next_at")),
            last=Start.from_json(data["last"]) if data.get("last") else None,
            user=data.get("user") or "",
            created_at=parse_time(data.get("created_at")),
            manifest=data.get("manifest") or {},
            notes=tuple(data.get("notes") or ()),
            raw=data,
        )
