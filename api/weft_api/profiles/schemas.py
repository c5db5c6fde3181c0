"""Profiles on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_FILE: dict[str, Any] = {
    "path": "20260131-081500-4f2a/learner-1/rank-0.trace.json.gz",
    "learner": 1,
    "process": "rank-0",
    "kind": "trace",
    "size": 481302,
}
_PROFILE: dict[str, Any] = {"id": "20260131-081500-4f2a", "stored": "2026-01-31T08:15:09Z", "files": [_FILE]}


Kind = Literal["trace", "stacks", "collectives"]


class ProfileFile(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_FILE]})

    path: str
    learner: int = Field(description="LEARNER_ID, from 1.")
    process: str = Field(description="`rank-N`, or `process-N` for a process without a rank.")
    kind: Kind = Field(
        description="`trace`: of PyTorch's profiler, as a Chrome trace in gzip. `stacks`: of py-spy, a stack per line, "
        "from the outermost call to the innermost, with the number of times that it was seen. `collectives`: of "
        "PyTorch's flight recorder, a line for each collective that the process has entered, with the process group, "
        "the collective's number in it, the operation, and the time in ns since the epoch."
    )
    size: int = Field(description="Size in bytes.")


class ProfileView(BaseModel):
    model_config = ConfigDict(title="Profile", json_schema_extra={"examples": [_PROFILE]})

    id: str = Field(description="Begins with the time at which the profile was asked for, by the client's clock.")
    stored: datetime = Field(description="When its last file was stored.")
    files: list[ProfileFile]


class ProfileList(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"profiles": [_PROFILE]}]})

    profiles: list[ProfileView] = Field(description="Newest first.")
