"""Schedules, and the starts of their jobs (docs/schedules.md)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    LargeBinary,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created, one_of, project


class ScheduleState(StrEnum):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    """Neither a time nor a promotion starts a job."""


class Trigger(StrEnum):
    TIME = "time"
    PROMOTION = "promotion"
    REQUEST = "request"
    """A user has asked for a job."""


class StartState(StrEnum):
    DUE = "DUE"
    """A promotion whose job has not been made yet."""
    STARTED = "STARTED"
    SKIPPED = "SKIPPED"
    """An earlier job had not ended, or the schedule was paused."""
    REFUSED = "REFUSED"
    """The job could not be made."""


class ScheduleRow(Base):
    """A stored manifest, and what starts its jobs. A transaction that starts a job of it holds the row's lock."""

    __tablename__ = "schedules"
    __table_args__ = (
        CheckConstraint(one_of("state", ScheduleState), name="state"),
        ForeignKeyConstraint(["project_id", "code_sha256"], ["code_bundles.project_id", "code_bundles.sha256"]),
        Index("ix_schedules_due", "next_step_at", postgresql_where=text("next_step_at is not null")),
        Index("ix_schedules_listing", "project_id", text("created_at desc"), text("id desc")),
        Index("ix_schedules_code", "project_id", "code_sha256", postgresql_where=text("code_sha256 is not null")),
        Index("ix_schedules_stage", "project_id", "model", "stage", postgresql_where=text("model is not null")),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))  # the owner: its jobs are this user's
    name: Mapped[str]
    manifest: Mapped[dict[str, Any]]  # canonical form, with `schedule`, `on` or both
    code_sha256: Mapped[str | None]
    credentials: Mapped[bytes | None] = mapped_column(LargeBinary)  # encrypted: those that came with the manifest
    packages: Mapped[dict[str, Any] | None]  # as sweeps.packages
    budget_id: Mapped[str | None] = mapped_column(ForeignKey("budgets.id", ondelete="SET NULL"))  # of its jobs
    model: Mapped[str | None]  # of `on`
    stage: Mapped[str | None]

    state: Mapped[str] = mapped_column(server_default=ScheduleState.ACTIVE.value)
    reason: Mapped[str] = mapped_column(server_default="")  # why it is paused, for the user
    due_at: Mapped[datetime | None]  # the next time of `schedule`; none while it is paused
    next_step_at: Mapped[datetime | None]  # when a worker looks at it
    created_at: Mapped[datetime] = created()


class Start(Base):
    """A due time, a promotion or a request, and what came of it. A job is inserted together with its row."""

    __tablename__ = "starts"
    __table_args__ = (
        CheckConstraint(one_of("trigger", Trigger), name="trigger"),
        CheckConstraint(one_of("state", StartState), name="state"),
        # Exactly one start for each due time, and for each promotion.
        Index("uq_starts_time", "schedule_id", "due_at", unique=True, postgresql_where=text("trigger = 'time'")),
        UniqueConstraint("schedule_id", "promotion_id"),
        Index("ix_starts_listing", "schedule_id", text("id desc")),
        Index("ix_starts_job_id", "job_id", postgresql_where=text("job_id is not null")),
    )
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    project_id: Mapped[str] = project()
    schedule_id: Mapped[str] = mapped_column(ForeignKey("schedules.id", ondelete="CASCADE"))
    trigger: Mapped[str]
    due_at: Mapped[datetime] = created()  # when its job was to start
    promotion_id: Mapped[int | None] = mapped_column(BigInteger)  # no foreign key: a model may be deleted
    version: Mapped[int | None]  # of the model that `on` names
    user_id: Mapped[str | None] = mapped_column(ForeignKey("users.id"))  # who promoted, or asked for the job
    state: Mapped[str]
    reason: Mapped[str] = mapped_column(server_default="")
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="SET NULL"))
    created_at: Mapped[datetime] = created()
