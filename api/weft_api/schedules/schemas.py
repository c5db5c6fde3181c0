"""Schedules on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_START: dict[str, Any] = {
    "id": 41,
    "trigger": "time",
    "due_at": "2026-01-31T02:00:00Z",
    "state": "STARTED",
    "reason": "",
    "version": None,
    "user": None,
    "job": "job-4k9x2m7qd1ze",
    "job_state": "COMPLETED",
}
_SCHEDULE: dict[str, Any] = {
    "id": "sch-2m7qd1ze4k9x",
    "name": "nightly",
    "state": "ACTIVE",
    "reason": "",
    "cron": "0 3 * * *",
    "timezone": "Europe/Berlin",
    "overlap": "skip",
    "on": None,
    "next_at": "2026-02-01T02:00:00Z",
    "last": _START,
    "user": "ann",
    "created_at": "2026-01-30T08:15:00.018211Z",
    "notes": [],
}


class StartView(BaseModel):
    """A time, a promotion or a request, and the job that it has started."""

    model_config = ConfigDict(title="Start", json_schema_extra={"examples": [_START]})

    id: int
    trigger: str = Field(description="`time`, `promotion` or `request`.")
    due_at: datetime = Field(description="When the job was to start.")
    state: str = Field(
        description="STARTED; SKIPPED (an earlier job had not ended, or the schedule was paused); REFUSED (the job "
        "could not be made); or DUE (a promotion whose job is made in a moment)."
    )
    reason: str = Field(description="Why there is no job, or that times before were missed.")
    version: int | None = Field(description="The version of the model that `on` names.")
    user: str | None = Field(description="The user who promoted the model, or asked for the job.")
    job: str | None = Field(description="Null: there is none, or it was deleted.")
    job_state: str | None


class StartPage(BaseModel):
    starts: list[StartView]
    next_cursor: str | None = Field(description="Send it back as `cursor` for the next page; null on the last.")


class ScheduleView(BaseModel):
    """A schedule as lists show it."""

    model_config = ConfigDict(title="Schedule", json_schema_extra={"examples": [_SCHEDULE]})

    id: str
    name: str
    state: str = Field(description="ACTIVE or PAUSED.")
    reason: str = Field(description="Why it is paused.")
    cron: str | None = Field(description="The times; null: only promotions start jobs.")
    timezone: str | None
    overlap: str | None = Field(description="`skip` or `queue`.")
    on: str | None = Field(description="The model and the stage whose promotions start jobs.")
    next_at: datetime | None = Field(description="The next time; null while it is paused.")
    last: StartView | None = Field(description="The last start.")
    user: str = Field(description="The owner: the jobs are this user's.")
    created_at: datetime
    notes: list[str] = Field(default_factory=list, description="Hints and warnings; only in the answer to a submit.")


class ScheduleDetail(ScheduleView):
    """A schedule with its manifest."""

    model_config = ConfigDict(title="ScheduleDetail", json_schema_extra={"examples": [{**_SCHEDULE, "manifest": {}}]})

    manifest: dict[str, Any] = Field(description="The canonical form of the manifest, without credentials.")


class SchedulePage(BaseModel):
    schedules: list[ScheduleView]
    next_cursor: str | None = Field(description="Send it back as `cursor` for the next page; null on the last.")
