"""Log lines: where each is, and how far each learner has sent its own."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ARRAY, BigInteger, ForeignKey, Index, Integer, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created, project


class LogCursor(Base):
    """The counter row: appending a chunk locks it, so lines are numbered in commit order and a cursor never skips."""

    __tablename__ = "log_cursors"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    project_id: Mapped[str] = project()
    next_line: Mapped[int] = mapped_column(BigInteger, server_default="0")
    bytes: Mapped[int] = mapped_column(BigInteger, server_default="0")
    archived: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Lines below it are in S3 (log_frames), those from it on are here (log_chunks)."""
    latest: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """The newest time of any line, in milliseconds since the epoch."""
    paid_until: Mapped[datetime | None]
    """The rate limit: each batch moves it on by the seconds that its lines are worth."""


class LogSource(Base):
    """How far the batches of one learner have been taken in: what makes an agent's repeated send harmless, also when
    the batch is in S3 by now."""

    __tablename__ = "log_sources"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    next_sequence: Mapped[int] = mapped_column(BigInteger)
    written_at: Mapped[datetime] = created()


class LogChunk(Base):
    """Consecutive lines of one learner, as its agent sent them: UTF-8, each line ended by a newline."""

    __tablename__ = "log_chunks"
    __table_args__ = (Index(None, "job_id", "rank", "first_line"), Index(None, "job_id", "latest"))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    first_line: Mapped[int] = mapped_column(BigInteger, primary_key=True)  # per job, from 0
    project_id: Mapped[str] = project()
    attempt: Mapped[int]
    rank: Mapped[int]
    lines: Mapped[int]
    body: Mapped[bytes] = mapped_column(LargeBinary)
    times: Mapped[bytes] = mapped_column(
        LargeBinary
    )  # weft_core.log_archive.pack_times: one a line, the learner's clock
    latest: Mapped[int] = mapped_column(
        BigInteger
    )  # the newest time of the job's lines up to the end of this chunk, ms
    created_at: Mapped[datetime] = created()


class LogFrame(Base):
    """Consecutive lines of a job in S3: one compressed piece of an object (see weft_core.log_archive)."""

    __tablename__ = "log_frames"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    first_line: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    project_id: Mapped[str] = project()
    lines: Mapped[int]
    object: Mapped[str]  # the key
    start: Mapped[int] = mapped_column(BigInteger)  # where in the object it begins
    size: Mapped[int]  # bytes there
    attempts: Mapped[list[int]] = mapped_column(ARRAY(Integer))  # whose lines are in it
    ranks: Mapped[list[int]] = mapped_column(ARRAY(Integer))
    latest: Mapped[int] = mapped_column(BigInteger)  # as of the last of its chunks
    arrived_at: Mapped[datetime]  # when the last of its chunks came
