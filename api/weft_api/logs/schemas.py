"""Log lines on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from weft_api.access.learner_calls import LATEST, LearnerCall, Storable, call_examples

MOST_LINES = 2000
"""In one call of a learner."""
_LINE: dict[str, Any] = {"n": 41, "t": 1769847309018, "attempt": 1, "learner": 2, "text": "epoch 1: loss 0.412"}


class LogLine(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_LINE]})

    n: int = Field(description="The line's number in the job's log, from 0, all learners counted together.")
    t: int = Field(description="Milliseconds since the epoch, by the learner's clock.")
    attempt: int
    learner: int = Field(description="LEARNER_ID, from 1.")
    text: str


class LogPage(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"lines": [_LINE], "first": 41, "next": 42, "previous": 41, "total": 42, "end": False}]
        }
    )

    lines: list[LogLine]
    first: int | None = Field(description="The number of the first of these lines; null when there is none.")
    next: int = Field(description="`from` of the next page.")
    previous: int | None = Field(description="`before` of the page above; null when there is nothing above.")
    total: int = Field(description="Lines in the job's log so far, whatever the filters.")
    end: bool = Field(description="The job has ended and this was the rest of its log.")


class LogMatch(BaseModel):
    """A line that was looked for, and what stands around it. Neighbours' surroundings may overlap."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"line": _LINE, "before": [], "after": [], "spans": [[9, 13]]}]}
    )

    line: LogLine
    before: list[LogLine]
    after: list[LogLine]
    spans: list[tuple[int, int]] = Field(description="What matches in `line.text`: begin and end, in characters.")


class SearchPage(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "matches": [{"line": _LINE, "before": [], "after": [], "spans": [[9, 13]]}],
                    "next": 1048576,
                    "end": False,
                }
            ]
        }
    )

    matches: list[LogMatch]
    next: int = Field(description="`from` of the call that searches on.")
    end: bool = Field(description="Searched up to where the log ends now; else a call reads a bounded part only.")


class LogLineIn(BaseModel):
    """``t``: ms since the epoch by the learner's clock; ``s``: the line."""

    t: int = Field(ge=0, le=LATEST)
    s: Storable


class LogsHead(LearnerCall):
    """A call with log lines, without the lines."""

    sequence: int = Field(
        ge=0,
        le=2**53,
        description="Of this agent's batches in this attempt, from 0, without gaps; one that is lower than the last is "
        "a repetition, and changes nothing.",
    )
    late: bool = Field(
        default=False,
        description="What an agent that has died left unsent: taken for a day after the attempt's end, too.",
    )


class LogsCall(LogsHead):
    model_config = call_examples(sequence=0, lines=[{"t": 1769847309018, "s": "epoch 1: loss 0.412"}])

    lines: list[LogLineIn] = Field(max_length=MOST_LINES)


Tail = Annotated[int | None, Query(ge=0, le=1_000_000, description="Begin this many lines before the end.")]
From = Annotated[int | None, Query(ge=0, le=2**53, alias="from", description="Begin with this line (`n`).")]
Text = Annotated[str, Query(max_length=200, description="Only lines with this text in them, in any case.")]
Before = Annotated[
    int | None,
    Query(
        ge=0,
        le=2**53,
        description="The last `limit` lines before this one, to read upwards. Not with `from`, `tail`, `at`.",
    ),
]
Sought = Annotated[
    str, Query(min_length=1, max_length=1000, description="A substring, or a regular expression.", examples=["loss"])
]
