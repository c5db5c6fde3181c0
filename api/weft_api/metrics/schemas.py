"""Metrics on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from weft_api.access.learner_calls import LATEST, LearnerCall, call_examples

_T = 1769847309018
RECORD: dict[str, Any] = {
    "t": _T,
    "kind": "user",
    "group": "train",
    "etimes": {"iteration": 500, "epoch": 2},
    "values": {"loss": 0.412, "note": "warm-up is over"},
}
_SERIES: dict[str, Any] = {
    "name": "train/loss",
    "group": "train",
    "kind": "user",
    "learner": 1,
    "attempt": 1,
    "points": 1200,
    "first_step": 0,
    "last_step": 11990,
    "first_time": _T,
    "last_time": _T + 840_000,
    "last": 0.0556,
    "min": 0.0519,
    "max": 2.2847,
}
_BUCKETS: dict[str, Any] = {
    "name": "train/loss",
    "group": "train",
    "kind": "user",
    "learner": 1,
    "attempt": 1,
    "points": 1200,
    "x": [590, 1190],
    "min": [0.41, 0.2],
    "max": [2.28, 0.61],
    "last": [0.5, 0.22],
    "count": [60, 60],
}


class SeriesView(BaseModel):
    """The values of a metric of a learner in an attempt."""

    model_config = ConfigDict(title="Series", json_schema_extra={"examples": [_SERIES]})

    name: str = Field(description="Full name: `group/name`, or the name alone if there is no group.")
    group: str
    kind: str
    learner: int = Field(description="LEARNER_ID, from 1.")
    attempt: int
    points: int
    first_step: int
    last_step: int = Field(description="Step of the last point. Steps may come in any order.")
    first_time: int = Field(description="Milliseconds since the epoch, by the learner's clock.")
    last_time: int
    last: float | None = Field(description="The last value; null if it is not a finite number.")
    min: float | None = Field(description="The smallest finite value.")
    max: float | None = Field(description="The largest finite value.")


class SeriesList(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"series": [_SERIES], "notes": []}]})

    series: list[SeriesView]
    notes: list[str] = Field(description="Remarks about dropped values.")


class Buckets(BaseModel):
    """A series in at most `width` buckets, in the order of x. Each point counts in one bucket. `x` and `last` are the x
    and the value of the bucket's last point. Null stands for a value that is not finite."""

    model_config = ConfigDict(json_schema_extra={"examples": [_BUCKETS]})

    name: str
    group: str
    kind: str
    learner: int
    attempt: int
    points: int = Field(description="Number of points of the whole series, inside and outside the range.")
    x: list[int]
    min: list[float | None]
    max: list[float | None]
    last: list[float | None]
    count: list[int]


class QueryAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"x": "step", "series": [_BUCKETS], "left_out": 0}]})

    x: Literal["step", "time"]
    series: list[Buckets]
    left_out: int = Field(description="Number of matching series that are left out, because an answer has a limit.")


class RecordView(BaseModel):
    """A record as the training reported it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"rindex": 1, "attempt": 1, "learner": 1, **RECORD}]})

    rindex: int = Field(
        description="The record's number in the job, from 1. The records of all learners count together."
    )
    t: int
    attempt: int
    learner: int
    group: str
    etimes: dict[str, Any]
    values: dict[str, Any]
    types: dict[str, str] = Field(
        default_factory=dict,
        description="FfDL's types (`STRING`, `JSONSTRING`) of the texts in values and etimes that came with a type.",
    )


class RecordPage(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"records": [{"rindex": 1, "attempt": 1, "learner": 1, **RECORD}], "total": 1200}]
        }
    )

    records: list[RecordView]
    total: int = Field(description="Number of records so far.")


class BestAndLast(BaseModel):
    """A metric of a job, for lists. The values are those of the first learner that reports it, over all attempts."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"last": 0.97, "min": 0.11, "max": 0.98, "step": 11990, "time": 1_769_847_309_000}]
        }
    )

    last: float | None = Field(description="The newest value; null if it is not a finite number.")
    min: float | None
    max: float | None
    step: int | None = Field(description="Step of the newest value, if it has a step.")
    time: int | None = Field(
        description="Time of the newest value, in milliseconds since the epoch. Null if an older version of Weft "
        "stored the value."
    )


Names = Annotated[
    list[str],
    Query(
        alias="name",
        max_length=200,
        description="Only these metrics: `group/name`, or a name.",
        examples=[["train/loss"]],
    ),
]
Kind = Annotated[
    Literal["user", "system"] | None,
    Query(
        description="`user`: metrics that the training reports. `system`: the use of the learners' machines.",
        examples=["user"],
    ),
]


class RecordIn(BaseModel):
    """Values that were measured together. Numbers, and the strings `nan`, `inf` and `-inf`, become points of series."""

    model_config = ConfigDict(json_schema_extra={"examples": [RECORD]})

    t: int = Field(ge=0, le=LATEST, description="Milliseconds since the epoch, by the learner's clock.")
    kind: Literal["user", "system"] = "user"
    group: str = Field(default="", description="FfDL's grouplabel; may be empty.")
    etimes: dict[str, Any] = Field(default_factory=dict, description="`iteration` is the step.")
    values: dict[str, Any] = Field(default_factory=dict)
    types: dict[str, Literal["STRING", "JSONSTRING"]] = Field(
        default_factory=dict, description="FfDL's types of the texts in values and etimes that have a type."
    )


class MetricRecords(BaseModel):
    """Metric records of a learner. The server cuts values that are too long or too many in a record instead of refusing
    the call: no training waits until its metrics are in order."""

    sequence: int = Field(
        ge=0,
        le=2**53,
        description="Number of the call among those of this agent in this attempt. The numbers rise, and an agent "
        "sends one call at a time. A call whose number is not above all earlier numbers is a repetition and changes "
        "nothing.",
    )
    records: list[RecordIn] = Field(max_length=2000)


class MetricsCall(LearnerCall, MetricRecords):
    model_config = call_examples(sequence=0, records=[RECORD])
