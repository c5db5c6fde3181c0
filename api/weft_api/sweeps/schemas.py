"""Sweeps on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

_TRIAL: dict[str, Any] = {
    "number": 7,
    "state": "COMPLETED",
    "parameters": {"batch": 32, "lr": 0.0123},
    "value": 0.981,
    "reason": "",
    "parent": None,
    "job": "job-4k9x2m7qd1ze",
    "job_state": "COMPLETED",
    "created_at": "2026-01-31T08:15:02.512345Z",
    "ended_at": "2026-01-31T08:18:40.018211Z",
}
_SWEEP: dict[str, Any] = {
    "id": "swp-2m7qd1ze4k9x",
    "name": "mnist",
    "state": "RUNNING",
    "reason": "",
    "metric": "val/accuracy",
    "goal": "max",
    "search": "tpe",
    "trials": 40,
    "parallel": 4,
    "asked": 12,
    "told": 8,
    "best": _TRIAL,
    "user": "admin",
    "created_at": "2026-01-31T08:15:00.018211Z",
    "ended_at": None,
    "notes": [],
}

ParameterValue = StrictBool | StrictInt | StrictFloat | Annotated[StrictStr, Field(max_length=1000)]


class TrialView(BaseModel):
    """A trial: one choice of the parameters, and how good it is."""

    model_config = ConfigDict(title="Trial", json_schema_extra={"examples": [_TRIAL]})

    number: int = Field(description="Its number in the sweep, from 0.")
    state: str = Field(description="RUNNING, COMPLETED (it has a value), FAILED or HALTED.")
    parameters: dict[str, bool | int | float | str]
    value: float | None = Field(description="The best value of the sweep's metric that it has reported.")
    reason: str = Field(description="Why it has no value.")
    parent: int | None = Field(
        default=None, description="With `pbt`: the number of the trial whose checkpoint it began with."
    )
    job: str | None = Field(description="The job that runs it; null for one that runs elsewhere, or if it was deleted.")
    job_state: str | None = Field(description="The state of this job.")
    created_at: datetime
    ended_at: datetime | None


class TrialPage(BaseModel):
    trials: list[TrialView]
    next_cursor: str | None = Field(description="Send it back as `cursor` for the next page; null on the last.")


class SweepView(BaseModel):
    """A sweep as lists show it."""

    model_config = ConfigDict(title="Sweep", json_schema_extra={"examples": [_SWEEP]})

    id: str
    name: str
    state: str = Field(description="RUNNING, PAUSED, STOPPING, COMPLETED, STOPPED or FAILED.")
    reason: str = Field(description="Why the sweep is in its state.")
    metric: str
    goal: str = Field(description="`max` or `min`.")
    search: str
    trials: int = Field(description="The trials that the sweep makes at most.")
    parallel: int
    asked: int = Field(description="The trials so far.")
    told: int = Field(description="The trials that have ended.")
    best: TrialView | None = Field(description="The best trial so far.")
    user: str = Field(description="The user who submitted the sweep.")
    created_at: datetime
    ended_at: datetime | None
    notes: list[str] = Field(default_factory=list, description="Hints and warnings; only in the answer to a submit.")


class SweepDetail(SweepView):
    """A sweep with its manifest."""

    model_config = ConfigDict(title="SweepDetail", json_schema_extra={"examples": [{**_SWEEP, "manifest": {}}]})

    manifest: dict[str, Any] = Field(description="The canonical form of the manifest, without credentials.")


class Importance(BaseModel):
    name: str
    share: float = Field(description="From 0 to 1. The shares of all parameters add up to 1.")


class SweepImportance(BaseModel):
    """How much each parameter matters for a good value, by Optuna's PED-ANOVA."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"trials": 40, "parameters": [{"name": "lr", "share": 0.8}, {"name": "batch", "share": 0.2}]}]
        }
    )

    trials: int = Field(description="The number of trials that count: those with a value, the newest 2000.")
    parameters: list[Importance] = Field(
        description="The most important first. Empty with fewer than 10 such trials, or if all have the same value."
    )


class SweepPage(BaseModel):
    sweeps: list[SweepView]
    next_cursor: str | None = Field(description="Send it back as `cursor` for the next page; null on the last.")


class AskBody(BaseModel):
    model_config = ConfigDict(
        title="Ask", extra="forbid", json_schema_extra={"examples": [{"parameters": {"batch": 32, "lr": 0.01}}]}
    )

    parameters: dict[Annotated[str, Field(max_length=63)], ParameterValue] | None = Field(
        default=None,
        max_length=64,
        description="A value for each parameter. Without it, the sweep's search chooses; a `manual` sweep needs it.",
    )
    run: bool = Field(
        default=True, description="Whether a job runs the trial. If not, you run it yourself, and tell its value."
    )


class TellBody(BaseModel):
    model_config = ConfigDict(title="Tell", extra="forbid", json_schema_extra={"examples": [{"value": 0.981}]})

    value: float | None = Field(default=None, allow_inf_nan=False, description="The value of the sweep's metric.")
    failed: str | None = Field(
        default=None, min_length=1, max_length=1000, description="Instead of a value: why there is none."
    )

    @model_validator(mode="after")
    def _one(self) -> TellBody:
        if (self.value is None) == (self.failed is None):
            raise ValueError("give either value or failed")
        return self
