"""Sweeps, and their trials: jobs that differ in their parameters only (docs/sweeps.md)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ARRAY, CheckConstraint, Double, ForeignKey, ForeignKeyConstraint, Index, LargeBinary, func, text
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created, one_of, project


class SweepState(StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    """Trials that have begun go on; no new one begins."""
    STOPPING = "STOPPING"
    """No new trial begins, and those under way are halted."""
    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


class TrialState(StrEnum):
    RUNNING = "RUNNING"
    """Its job has not ended, or its value has not come through the API yet."""
    COMPLETED = "COMPLETED"
    """It has a value."""
    FAILED = "FAILED"
    HALTED = "HALTED"
    """Its job was halted or deleted. It counts neither as a result nor as a failure."""


class SweepRow(Base):
    """A sweep. A transaction that makes or closes trials holds its lock."""

    __tablename__ = "sweeps"
    __table_args__ = (
        CheckConstraint(one_of("state", SweepState), name="state"),
        ForeignKeyConstraint(["project_id", "code_sha256"], ["code_bundles.project_id", "code_bundles.sha256"]),
        Index("ix_sweeps_due", "next_step_at", postgresql_where=text("next_step_at is not null")),
        Index("ix_sweeps_listing", "project_id", text("created_at desc"), text("id desc")),
        Index("ix_sweeps_code", "project_id", "code_sha256", postgresql_where=text("code_sha256 is not null")),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    name: Mapped[str]
    manifest: Mapped[dict[str, Any]]  # canonical form, with `sweep`
    code_sha256: Mapped[str | None]
    credentials: Mapped[bytes | None] = mapped_column(LargeBinary)  # encrypted: those that came with the manifest
    packages: Mapped[dict[str, Any] | None]  # of the code's lists of packages: {digest, lines, code_sha256, index}
    pretrained_id: Mapped[str | None]  # as jobs.pretrained_id
    budget_id: Mapped[str | None] = mapped_column(ForeignKey("budgets.id", ondelete="SET NULL"))  # its trials'

    state: Mapped[str] = mapped_column(server_default=SweepState.RUNNING.value)
    ends_as: Mapped[str | None]  # of a STOPPING one: the state that it enters when all trials have ended
    reason: Mapped[str] = mapped_column(server_default="")  # why it is in this state, for the user
    asked: Mapped[int] = mapped_column(server_default="0")  # trials so far: the number of the next
    told: Mapped[int] = mapped_column(server_default="0")  # trials that have ended
    failures: Mapped[int] = mapped_column(server_default="0")  # failed trials in a row
    best: Mapped[int | None]  # the number of the best trial
    best_value: Mapped[float | None] = mapped_column(Double)
    created_at: Mapped[datetime] = created()
    ended_at: Mapped[datetime | None]
    next_step_at: Mapped[datetime | None] = mapped_column(server_default=func.now())  # none: until a trial has ended


class Trial(Base):
    """A trial. A job's is inserted together with the job."""

    __tablename__ = "trials"
    __table_args__ = (
        CheckConstraint(one_of("state", TrialState), name="state"),
        Index("ix_trials_open", "job_id", postgresql_where=text("state = 'RUNNING'")),
        Index("ix_trials_told", "sweep_id", "told"),
        Index("ix_trials_value", "sweep_id", "value", "number", postgresql_where=text("state = 'COMPLETED'")),
    )
    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)  # from 0
    project_id: Mapped[str] = project()
    parameters: Mapped[dict[str, Any]]
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="SET NULL"), unique=True)
    parent: Mapped[int | None]  # the number of the trial whose checkpoint it began with
    rung: Mapped[int | None]  # of a sweep whose trials go on: the rung that it runs, or ran last, from 0
    results: Mapped[list[float]] = mapped_column(
        ARRAY(Double), server_default=text("'{}'")
    )  # its value at each rung's end
    runs: Mapped[bool]  # it has, or had, a job; else its value comes through the API
    state: Mapped[str] = mapped_column(server_default=TrialState.RUNNING.value)
    value: Mapped[float | None] = mapped_column(Double)
    reason: Mapped[str] = mapped_column(server_default="")
    seen: Mapped[int]  # how many trials had ended when its parameters were chosen
    told: Mapped[int | None]  # it was this one, from 1, to end
    memory: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))  # what the search noted with it
    created_at: Mapped[datetime] = created()
    ended_at: Mapped[datetime | None]
