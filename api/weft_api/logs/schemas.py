"""Log lines on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

_LINE: dict[str, Any] = {"n": 41, "t": 1769847309018, "attempt": 1, "learner": 2, "text": "epoch 1: loss 0.412"}


class LogLine(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_LINE]})

    n: int = Field(description="The line's number in the job's log, from 0, all learners counted together.")
    t: int = Field(description="Milliseconds since the epoch, by the learner's clock.")
    attempt: int
    learner: int = Field(description="LEARNER_ID, from 1.")
    text: str


class LogPage(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"lines": [_LINE], "next": 42, "end": False}]})

    lines: list[LogLine]
    next: int = Field(description="`from` of the next page.")
    end: bool = Field(description="The job has ended and this was the rest of its log.")


LearnerId = Annotated[int | None, Query(ge=1, le=100_001, alias="learner", description="Only this LEARNER_ID's.")]
AttemptNumber = Annotated[int | None, Query(ge=1, le=1_000_000, alias="attempt", description="Only this attempt's.")]
Tail = Annotated[int | None, Query(ge=0, le=1_000_000, description="Begin this many lines before the end.")]
From = Annotated[int | None, Query(ge=0, le=2**53, alias="from", description="Begin with this line (`n`).")]
Text = Annotated[str, Query(max_length=200, description="Only lines with this text in them, in any case.")]
