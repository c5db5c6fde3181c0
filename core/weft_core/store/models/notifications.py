"""Rules that have fired, and the outbox of notifications."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created, project


class RuleFiring(Base):
    """A rule of a job's manifest that holds: written with the line or the value that fulfils it, once for each rule.

    What the rule demands is done by a worker, under the lock of the job's row (:mod:`weft_core.store.rules`)."""

    __tablename__ = "rule_firings"
    __table_args__ = (Index("ix_rule_firings_open", "job_id", postgresql_where=text("acted_at is null")),)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    rule: Mapped[int] = mapped_column(primary_key=True)  # its index in the manifest
    project_id: Mapped[str] = project()
    attempt: Mapped[int]
    found: Mapped[str]  # what fulfilled it, for the user
    fired_at: Mapped[datetime] = created()
    acted_at: Mapped[datetime | None]  # none: a worker still has to act on it


class Delivery(Base):
    """A notification of one event to one target of the manifest; written in the transaction that causes the event."""

    __tablename__ = "deliveries"
    __table_args__ = (
        UniqueConstraint("event_id", "target"),
        Index("ix_deliveries_job", "job_id", "event_id"),
        Index("ix_deliveries_due", "next_try_at", postgresql_where=text("next_try_at is not null")),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    event_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("events.id", ondelete="CASCADE"))
    target: Mapped[int]  # its index in the manifest's notify
    queued_at: Mapped[datetime] = created()  # or replayed
    tries: Mapped[int] = mapped_column(server_default="0")  # since then, one that is under way included
    tried_at: Mapped[datetime | None]
    status: Mapped[str | None]  # the result of the last try, for the user: 'HTTP 200', 'no answer'
    delivered_at: Mapped[datetime | None]
    failed_at: Mapped[datetime | None]  # given up
    next_try_at: Mapped[datetime | None] = mapped_column(server_default=func.now())
    """While a try is under way: when another worker tries again if this one dies. None: nothing is left to do."""
