"""Log lines on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from weft_api.access.learner_calls import LATEST, LearnerCall, Storable, call_examples

MOST_LINES = 2000
"""The most lines in a call of a learner."""
_LINE: dict[str, Any] = {"n": 41, "t": 1769847309018, "attempt": 1, "learner": 2, "text": "epoch 1: loss 0.412"}


class LogLine(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_LINE]})

    n: int = Field(description="The line's number in the job's log, from 0. The lines of all learners count together.")
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
    first: int | None = Field(description="The number of the first line of the page; null if the page is empty.")
    next: int = Field(description="`from` of the next page.")
    previous: int | None = Field(description="`before` of the page above; null if there is none.")
    total: int = Field(description="Number of lines in the job's log so far. Filters do not change it.")
    removed: int = Field(
        default=0,
        description="How many of these lines, from the first on, the project no longer keeps. No page has them.",
    )
    end: bool = Field(description="True if the job has ended and the page reaches the end of its log.")


class LogMatch(BaseModel):
    """A matching line, with the lines around it. The surroundings of two matches may overlap."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"line": _LINE, "before": [], "after": [], "spans": [[9, 13]]}]}
    )

    line: LogLine
    before: list[LogLine]
    after: list[LogLine]
    spans: list[tuple[int, int]] = Field(description="The matching parts of `line.text`: begin and end, in characters.")


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
    next: int = Field(description="`from` of the next call.")
    end: bool = Field(
        description="True if the search has reached the present end of the log. A call searches a bounded part of it."
    )


class LogLineIn(BaseModel):
    """A line in a batch. ``t``: milliseconds since the epoch, by the learner's clock. ``s``: the line's text."""

    t: int = Field(ge=0, le=LATEST)
    s: Storable


BatchNumber = Annotated[
    int,
    Field(
        ge=0,
        le=2**53,
        description="Number of the batch among those of this agent in this attempt, from 0 and without gaps. A batch "
        "with a lower number than the last batch is a repetition and changes nothing.",
    ),
]


class LogBatch(BaseModel):
    """Log lines in a report."""

    sequence: BatchNumber
    lines: list[LogLineIn] = Field(max_length=MOST_LINES)


class LogsHead(LearnerCall):
    """A call with log lines, without the lines."""

    sequence: BatchNumber
    late: bool = Field(
        default=False,
        description="An agent that has died left the batch unsent. The server accepts such a batch for a day after the "
        "attempt's end.",
    )


class LogsCall(LogsHead):
    model_config = call_examples(sequence=0, lines=[{"t": 1769847309018, "s": "epoch 1: loss 0.412"}])

    lines: list[LogLineIn] = Field(max_length=MOST_LINES)


Tail = Annotated[int | None, Query(ge=0, le=1_000_000, description="Start this many lines before the end.")]
From = Annotated[int | None, Query(ge=0, le=2**53, alias="from", description="Start with this line (`n`).")]
Text = Annotated[str, Query(max_length=200, description="Only lines that contain this text, in upper or lower case.")]
Before = Annotated[
    int | None,
    Query(
        ge=0,
        le=2**53,
        description="To read upwards: the last `limit` lines before this line. Cannot be combined with `from`, `tail` "
        "and `at`.",
    ),
]
Sought = Annotated[
    str,
    Query(
        min_length=1,
        max_length=1000,
        description="The text to search for, or a regular expression.",
        examples=["loss"],
    ),
]
