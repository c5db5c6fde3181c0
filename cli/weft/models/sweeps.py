"""Sweeps and their trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from weft.models.base import Json, ServerValue, parse_time


@dataclass(frozen=True)
class Trial(ServerValue):
    """One choice of a sweep's parameters. ``state`` is RUNNING, COMPLETED (it has a ``value``), FAILED or HALTED;
    ``reason`` says why it has no value. ``parent`` is the number of the trial whose checkpoint it began with (with the
    search ``pbt``). ``job`` is None for a trial that runs elsewhere, or whose job was deleted."""

    number: int
    state: str
    parameters: Mapping[str, Any]
    value: float | None = None
    reason: str = ""
    job: str | None = None
    job_state: str | None = None
    parent: int | None = None
    created_at: datetime | None = None
    ended_at: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> Trial:
        return cls(
            number=int(data["number"]),
            state=str(data["state"]),
            parameters=data.get("parameters") or {},
            value=data.get("value"),
            reason=data.get("reason") or "",
            job=data.get("job"),
            job_state=data.get("job_state"),
            parent=data.get("parent"),
            created_at=parse_time(data.get("created_at")),
            ended_at=parse_time(data.get("ended_at")),
            raw=data,
        )


@dataclass(frozen=True)
class SweepInfo(ServerValue):
    """A sweep as the server has it. ``trials`` is the most that it makes, ``asked`` how many there are, and ``told``
    how many have ended. ``manifest`` only from :meth:`Sweeps.get`; ``notes`` only from :meth:`Sweeps.submit`."""

    id: str
    name: str
    state: str
    reason: str = ""
    metric: str = ""
    goal: str = "max"
    search: str = ""
    trials: int = 0
    parallel: int = 0
    asked: int = 0
    told: int = 0
    best: Trial | None = None
    user: str = ""
    created_at: datetime | None = None
    ended_at: datetime | None = None
    manifest: Json = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, data: Json) -> SweepInfo:
        return cls(
            id=str(data["id"]),
            name=str(data.get("name") or ""),
            state=str(data.get("state") or ""),
            reason=data.get("reason") or "",
            metric=data.get("metric") or "",
            goal=data.get("goal") or "max",
            search=data.get("search") or "",
            trials=int(data.get("trials") or 0),
            parallel=int(data.get("parallel") or 0),
            asked=int(data.get("asked") or 0),
            told=int(data.get("told") or 0),
            best=Trial.from_json(data["best"]) if data.get("best") else None,
            user=data.get("user") or "",
            created_at=parse_time(data.get("created_at")),
            ended_at=parse_time(data.get("ended_at")),
            manifest=data.get("manifest") or {},
            notes=tuple(data.get("notes") or ()),
            raw=data,
        )
