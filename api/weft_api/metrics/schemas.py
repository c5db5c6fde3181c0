"""Metrics on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from weft_api.access.learner_calls import LATEST, LearnerCall, call_examples

_T = 1769847309018
_RECORD: dict[str, Any] = {
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
    """One value of one learner in one attempt."""

    model_config = ConfigDict(title="Series", json_schema_extra={"examples": [_SERIES]})

    name: str = Field(description="As it is shown and asked for: `group/name`, or the name alone without a group.")
    group: str
    kind: str
    learner: int = Field(description="LEARNER_ID, from 1.")
    attempt: int
    points: int
    first_step: int
    last_step: int = Field(description="Of the last point; steps may come in any order.")
    first_time: int = Field(description="ms since the epoch, by the learner's clock.")
    last_time: int
    last: float | None = Field(description="null: not a finite number.")
    min: float | None = Field(description="Of the finite ones.")
    max: float | None


class SeriesList(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"series": [_SERIES], "notes": []}]})

    series: list[SeriesView]
    notes: list[str] = Field(description="What was dropped, and why.")


class Buckets(BaseModel):
    """A series in at most `width` buckets, in the order of x. Each point counts in one bucket; `x` is that of the
    bucket's last point, and `last` its value. null stands for what is not finite."""

    model_config = ConfigDict(json_schema_extra={"examples": [_BUCKETS]})

    name: str
    group: str
    kind: str
    learner: int
    attempt: int
    points: int = Field(description="Of the whole series, in the range or not.")
    x: list[int]
    min: list[float | None]
    max: list[float | None]
    last: list[float | None]
    count: list[int]


class QueryAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"x": "step", "series": [_BUCKETS], "left_out": 0}]})

    x: Literal["step", "time"]
    series: list[Buckets]
    left_out: int = Field(description="Series that were asked for, too, but are more than one answer holds.")


class RecordView(BaseModel):
    """A record as it came."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"rindex": 1, "attempt": 1, "learner": 1, **_RECORD}]})

    rindex: int = Field(description="Its number in the job, from 1, all learners counted together.")
    t: int
    attempt: int
    learner: int
    group: str
    etimes: dict[str, Any]
    values: dict[str, Any]
    types: dict[str, str] = Field(
        default_factory=dict,
        description="FfDL's types (`STRING`, `JSONSTRING`) of texts among values and etimes that came with one.",
    )


class RecordPage(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"records": [{"rindex": 1, "attempt": 1, "learner": 1, **_RECORD}], "total": 1200}]
        }
    )

    records: list[RecordView]
    total: int = Field(description="Records so far.")


class BestAndLast(BaseModel):
    """A metric of a job, for lists: of the first learner that reports it, over all attempts."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"last": 0.97, "min": 0.11, "max": 0.98, "step": 11990, "time": 1_769_847_309_000}]
        }
    )

    last: float | None = Field(description="The newest; null: not a finite number.")
    min: float | None
    max: float | None
    step: int | None = Field(description="Of the newest, where it had one.")
    time: int | None = Field(description="Of the newest, milliseconds since the epoch; null: from before Weft kept it.")


Names = Annotated[
    list[str],
    Query(alias="name", max_length=200, description="Only these: `group/name`, or a name.", examples=[["train/loss"]]),
]
Kind = Annotated[
    Literal["user", "system"] | None,
    Query(description="What the training reports, or what its learners' machines do.", examples=["user"]),
]


class RecordIn(BaseModel):
    """What was measured together. Numbers, and the strings `nan`, `inf` and `-inf`, become points of series."""

    model_config = ConfigDict(json_schema_extra={"examples": [_RECORD]})

    t: int = Field(ge=0, le=LATEST, description="ms since the epoch, by the learner's clock.")
    kind: Literal["user", "system"] = "user"
    group: str = Field(default="", description="FfDL's grouplabel; may be empty.")
    etimes: dict[str, Any] = Field(default_factory=dict, description="`iteration` is the step.")
    values: dict[str, Any] = Field(default_factory=dict)
    types: dict[str, Literal["STRING", "JSONSTRING"]] = Field(
        default_factory=dict, description="FfDL's types of texts among values and etimes, where they came with one."
    )


class MetricsCall(LearnerCall):
    """What is too long or too much is cut rather than refused: no training waits for its metrics to be in order."""

    model_config = call_examples(sequence=0, records=[_RECORD])

    sequence: int = Field(
        ge=0,
        le=2**53,
        description="Of this agent's calls in this attempt: rising, one call at a time. One that is not above all "
        "before it is a repetition, and changes nothing.",
    )
    records: list[RecordIn] = Field(max_length=2000)
