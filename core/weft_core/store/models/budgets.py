"""Budgets of GPU-hours, and what jobs have taken from them (docs/budgets.md)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Double, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created, project


class Budget(Base):
    """The GPU time that the jobs of a token may use, and those of all tokens that it makes."""

    __tablename__ = "budgets"
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    name: Mapped[str]  # the token's, for the reasons of jobs
    gpu_seconds: Mapped[float] = mapped_column(Double)
    created_at: Mapped[datetime] = created()


class Charge(Base):
    """What an attempt takes from a budget: reserved at its admission, settled at its end to what it has used.

    It outlives the job, so that a deletion gives nothing back."""

    __tablename__ = "charges"
    attempt_id: Mapped[str] = mapped_column(primary_key=True)  # no foreign key: its job may be deleted
    budget_id: Mapped[str] = mapped_column(ForeignKey("budgets.id", ondelete="CASCADE"), index=True)
    project_id: Mapped[str] = project()
    job_id: Mapped[str]
    gpu_seconds: Mapped[float] = mapped_column(Double)
    created_at: Mapped[datetime] = created()
    settled_at: Mapped[datetime | None]
