"""The audit trail on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from weft_core.store.audit import AuditOutcome
from weft_core.store.models import ActorKind

_RECORD: dict[str, Any] = {
    "id": 4711,
    "at": "2026-01-31T08:15:04.021Z",
    "actor": "token",
    "user": "ada",
    "user_id": "usr-4k9x2m7qd1ze",
    "token_id": "tok-3q8z1m5n7c2d",
    "address": "203.0.113.7",
    "action": "jobs.halt",
    "object_kind": "job",
    "object_id": "job-4k9x2m7qd1ze",
    "project": "vision",
    "project_id": "prj-7c2d3q8z1m5n",
    "outcome": "allowed",
    "status": 202,
    "request_id": "1f0c8a527a554d0e",
    "count": 1,
}


class AuditView(BaseModel):
    model_config = ConfigDict(title="AuditRecord", json_schema_extra={"examples": [_RECORD]})

    id: int
    at: datetime
    actor: ActorKind = Field(
        description="How the actor was known: by a token, a session, a password, an identity provider (`provider`), "
        "as a learner (with the token of its attempt), as Weft itself (`system`), or not at all."
    )
    user: str | None = Field(description="The user's name. Null if the actor is not a user.")
    user_id: str | None
    token_id: str | None = Field(description="The id of the token or of the session. Of a learner: of its attempt.")
    address: str = Field(description="The client's address.")
    action: str = Field(description="The name of the action, such as `jobs.halt`.")
    object_kind: str | None
    object_id: str | None = Field(description="The id or the name of the object.")
    project: str | None = Field(description="The project. Null if the action concerns the installation.")
    project_id: str | None
    outcome: AuditOutcome
    status: int = Field(description="The HTTP status of the answer.")
    request_id: str = Field(description="The `X-Request-ID` of the answer, which is also in the service's log.")
    count: int = Field(description="The number of equal refusals that the record stands for, or of expired records.")


class AuditPage(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"records": [_RECORD], "next_cursor": None}]})

    records: list[AuditView]
    next_cursor: str | None
