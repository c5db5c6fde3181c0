"""Events on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_EVENT: dict[str, Any] = {
    "id": 17,
    "at": "2026-01-31T08:15:04.021Z",
    "kind": "waiting",
    "state": None,
    "attempt": None,
    "message": "waiting for 2 GPUs: 1 of 4 free",
    "user": None,
    "data": {},
}


class EventView(BaseModel):
    model_config = ConfigDict(title="Event", json_schema_extra={"examples": [_EVENT]})

    id: int
    at: datetime
    kind: str = Field(
        description="One of submitted, note, state, waiting, image, learner, condition, desired, edited, rule and "
        "warning."
    )
    state: str | None = Field(description="The state that the job has entered; set if `kind` is `state`.")
    attempt: int | None
    message: str
    user: str | None = Field(description="The user who caused the event. Null if no user did.")
    data: dict[str, Any]


class EventPage(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"events": [_EVENT]}]})

    events: list[EventView]
