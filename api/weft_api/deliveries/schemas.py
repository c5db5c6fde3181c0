"""Deliveries on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_DELIVERY: dict[str, Any] = {
    "id": "dlv-7d0k2m9qx4ze",
    "event_id": "job-4k9x2m7qd1ze-17",
    "event": "FAILED",
    "message": "learner 1: exit code 1",
    "target": "https://hooks.example.com/…",
    "format": "json",
    "state": "waiting",
    "tries": 2,
    "status": "HTTP 503",
    "queued_at": "2026-01-31T08:21:44Z",
    "tried_at": "2026-01-31T08:21:56Z",
    "delivered_at": None,
    "next_try_at": "2026-01-31T08:22:15Z",
}


class DeliveryView(BaseModel):
    """A notification of one event to one target."""

    model_config = ConfigDict(title="Delivery", json_schema_extra={"examples": [_DELIVERY]})

    id: str
    event_id: str = Field(description="The id of the event, as the receiver gets it: the same for all tries.")
    event: str = Field(description="The state that the job has entered, or `rule`.")
    message: str
    target: str = Field(description="The e-mail address, or the webhook's URL without its path.")
    format: Literal["json", "slack", "email"]
    state: Literal["waiting", "delivered", "failed"]
    tries: int = Field(description="Tries since the delivery was queued or replayed.")
    status: str | None = Field(description="The result of the last try.")
    queued_at: datetime = Field(description="When the delivery was queued or replayed.")
    tried_at: datetime | None
    delivered_at: datetime | None
    next_try_at: datetime | None = Field(description="Null if no try is left to do.")


class DeliveryList(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"deliveries": [_DELIVERY]}]})

    deliveries: list[DeliveryView] = Field(description="Newest event first.")
