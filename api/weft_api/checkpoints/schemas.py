"""Checkpoints on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_CHECKPOINT: dict[str, Any] = {
    "generation": "000001-000004",
    "learner": 1,
    "job": "job-4k9x2m7qd1ze",
    "attempt": 1,
    "at": "2026-01-31T08:21:44Z",
    "files": 3,
    "size": 4711004,
}


class CheckpointView(BaseModel):
    model_config = ConfigDict(title="Checkpoint", json_schema_extra={"examples": [_CHECKPOINT]})

    generation: str = Field(description="The checkpoint's id. Later checkpoints have ids that sort after earlier ids.")
    learner: int = Field(description="LEARNER_ID, from 1, of the learner that wrote the files.")
    job: str | None = Field(
        description="The job whose learner stored the checkpoint. It is another job if this job started from that "
        "job's checkpoint."
    )
    attempt: int | None
    at: datetime | None
    files: int
    size: int = Field(description="Size in bytes.")


class CheckpointList(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"checkpoints": [_CHECKPOINT]}]})

    checkpoints: list[CheckpointView] = Field(description="Newest first.")
