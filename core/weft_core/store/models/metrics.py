"""Metrics: records as they came, and series to chart.

A batch is kept as it came until a few thousand points wait; then they are folded (weft_api.metrics.fold): into chunks
of records, as they were, and into the blocks of their series. A read always covers both the folded and the waiting
batches.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Double, ForeignKey, Identity, Index, LargeBinary, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, project


class MetricCursor(Base):
    """The counter row: taking in a batch locks it, so records are numbered in commit order."""

    __tablename__ = "metric_cursors"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    project_id: Mapped[str] = project()
    next_batch: Mapped[int] = mapped_column(BigInteger, server_default="0")
    next_record: Mapped[int] = mapped_column(BigInteger, server_default="1")  # of the user's own; rindex
    points: Mapped[int] = mapped_column(BigInteger, server_default="0")  # values of the user's records
    bytes: Mapped[int] = mapped_column(BigInteger, server_default="0")  # of them, as they are stored
    system_points: Mapped[int] = mapped_column(BigInteger, server_default="0")
    series: Mapped[int] = mapped_column(server_default="0")  # folded ones
    stepped_at: Mapped[datetime | None]  # when the last of the user's came; kept for jobs with a rule about it
    waiting: Mapped[int] = mapped_column(server_default="0")  # points in metric_batches
    dropped: Mapped[list[str]] = mapped_column(server_default=text("'[]'::jsonb"))  # of the kinds in LIMITS


class MetricBatch(Base):
    """The records of one call of a learner, until they are folded."""

    __tablename__ = "metric_batches"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    n: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    project_id: Mapped[str] = project()
    attempt: Mapped[int]
    rank: Mapped[int]
    first_record: Mapped[int] = mapped_column(BigInteger)
    records: Mapped[int]  # of kind user; the rest is of kind system
    system: Mapped[int]
    body: Mapped[bytes] = mapped_column(LargeBinary)  # zlib; a line of JSON a record, the user's first


class MetricRecords(Base):
    """Consecutive records of the user's, in the order of their numbers; never changed."""

    __tablename__ = "metric_records"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    first_record: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    project_id: Mapped[str] = project()
    records: Mapped[int]
    last_time: Mapped[int] = mapped_column(BigInteger)  # the latest in it, ms since the epoch
    body: Mapped[bytes] = mapped_column(LargeBinary)  # zlib; a line of JSON a record


class MetricSeries(Base):
    """One value of one learner in one attempt. The columns describe its folded points."""

    __tablename__ = "metric_series"
    __table_args__ = (UniqueConstraint("job_id", "attempt", "rank", "kind", "group", "name"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    project_id: Mapped[str] = project()
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    rank: Mapped[int]
    kind: Mapped[str]  # user | system
    group: Mapped[str]
    name: Mapped[str]
    points: Mapped[int] = mapped_column(BigInteger)
    first_step: Mapped[int] = mapped_column(BigInteger)
    last_step: Mapped[int] = mapped_column(BigInteger)
    first_time: Mapped[int] = mapped_column(BigInteger)  # ms since the epoch, the learner's clock
    last_time: Mapped[int] = mapped_column(BigInteger)
    last: Mapped[float] = mapped_column(Double)  # may be NaN or infinite
    min: Mapped[float | None] = mapped_column(Double)  # of the finite ones
    max: Mapped[float | None] = mapped_column(Double)


class MetricBlock(Base):
    """1024 consecutive points of a series (the last block: fewer), and a summary of each 32 of them."""

    __tablename__ = "metric_blocks"
    series_id: Mapped[int] = mapped_column(ForeignKey("metric_series.id", ondelete="CASCADE"), primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    points: Mapped[int]
    first_step: Mapped[int] = mapped_column(BigInteger)  # the smallest and the largest, in whatever order they came
    last_step: Mapped[int] = mapped_column(BigInteger)
    first_time: Mapped[int] = mapped_column(BigInteger)
    last_time: Mapped[int] = mapped_column(BigInteger)
    steps_rise: Mapped[bool]
    times_rise: Mapped[bool]
    summary: Mapped[bytes] = mapped_column(LargeBinary)  # weft_api.metrics.points says how
    body: Mapped[bytes] = mapped_column(LargeBinary)


class JobMetric(Base):
    """The values that lists of jobs show and are sorted by: one learner's newest and best value over all attempts."""

    __tablename__ = "job_metrics"
    __table_args__ = tuple(
        Index(f"ix_job_metrics_{stat}", "project_id", "name", stat, "job_id") for stat in ("last", "min", "max")
    )
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)  # group/name
    project_id: Mapped[str] = project()
    rank: Mapped[int]  # the lowest of those that report it
    last: Mapped[float | None] = mapped_column(Double)  # none: it is not finite
    min: Mapped[float | None] = mapped_column(Double)
    max: Mapped[float | None] = mapped_column(Double)
    step: Mapped[int | None] = mapped_column(BigInteger)  # of the last
    time: Mapped[int | None] = mapped_column(BigInteger)  # of the last, ms since the epoch
