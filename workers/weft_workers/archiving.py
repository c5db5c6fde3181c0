"""Moves the logs of ended attempts from Postgres to S3, a piece at a time.

The content of a piece names its object in S3. After the object is stored, one transaction notes where it is and deletes
the rows. Whenever a worker dies, readers therefore find each line in exactly one of the two places. An object without a
note is written again under the same name, or is removed with its job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog
from sqlalchemy import delete, func, select, text, update
from sqlalchemy.orm import Session

from weft_core.lifecycle.states import Desired
from weft_core.log_archive import FRAME_BYTES, ArchivedChunk, FrameInfo, ObjectWriter, logs_prefix
from weft_core.store.models import Attempt, Job, LogChunk, LogCursor, LogFrame
from weft_workers.context import Context

log = structlog.get_logger(__name__)

PIECE_BYTES = 64 << 20
"""About how many bytes of lines one object holds and one transaction deletes."""
_ROWS = 64
"""Read at once."""
_CLAIM = text("interval '2 minutes'")
"""How long a job is left to the worker that has taken it. After that it is due again, for example if S3 was away."""


@dataclass(frozen=True)
class _Part:
    """A frame, and its description for Postgres."""

    info: FrameInfo
    latest: int
    arrived_at: datetime


@dataclass
class _Piece:
    """The content of one object."""

    writer: ObjectWriter = field(default_factory=ObjectWriter)
    parts: list[_Part] = field(default_factory=list)
    raw: int = 0

    @property
    def end(self) -> int:
        last = self.parts[-1].info
        return last.first_line + last.lines

    def add(self, chunks: Sequence[LogChunk]) -> None:
        """Add a frame with these chunks."""
        archived = [
            ArchivedChunk(chunk.first_line, chunk.lines, chunk.attempt, chunk.rank, chunk.body, chunk.times)
            for chunk in chunks
        ]
        arrived = max(chunk.created_at for chunk in chunks)
        self.parts.append(_Part(self.writer.add(archived), chunks[-1].latest, arrived))
        self.raw += sum(len(chunk.body) for chunk in chunks)


@dataclass(frozen=True)
class Archiver:
    """Finds attempts that have ended, and moves their jobs' lines up to where an open attempt has begun."""

    context: Context

    def archive_due(self) -> None:
        """Archive all logs that are due now.

        Raises:
            StoreError: S3 is away; what is left is due again later.
        """
        while (found := self._claim()) is not None:
            project_id, job_id = found
            lines = 0
            while (piece := self._read(job_id)) is not None:
                key = self._put(project_id, job_id, piece)
                if not self._commit(job_id, key, piece):
                    break
                lines += sum(part.info.lines for part in piece.parts)
            self._settle(job_id)
            if lines:
                log.info("archived the log", job=job_id, lines=lines)

    def _claim(self) -> tuple[str, str] | None:
        """Project and job of an ended attempt whose log is due, which other workers leave alone for a while."""
        settle = text(f"interval '{self.context.settings.timings.log_settle:f} seconds'")
        due = (
            select(Attempt.id)
            .where(Attempt.ended_at < func.now() - settle, Attempt.logs_due <= func.now())
            .order_by(Attempt.logs_due)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        # A scalar subquery runs once. For `IN (…)`, Postgres may run it again, and claim a second row.
        claim = update(Attempt).where(Attempt.id == due.scalar_subquery()).values(logs_due=func.now() + _CLAIM)
        with self.context.database.transaction() as session:
            row = session.execute(claim.returning(Attempt.project_id, Attempt.job_id)).one_or_none()
        return None if row is None else (row.project_id, row.job_id)

    def _read(self, job_id: str) -> _Piece | None:
        """The next piece, in memory; None: there is nothing to move."""
        piece = _Piece()
        frame: list[LogChunk] = []
        size = 0
        for chunk in self._chunks(job_id):
            frame.append(chunk)
            size += len(chunk.body)
            if size >= FRAME_BYTES:
                piece.add(frame)
                frame, size = [], 0
                if piece.raw >= PIECE_BYTES:
                    return piece
        if frame:
            piece.add(frame)
        return piece if piece.parts else None

    def _chunks(self, job_id: str) -> Iterator[LogChunk]:
        """The job's chunks in order, up to the first of an open attempt."""
        with self.context.database.transaction() as session:
            position = session.scalar(select(LogCursor.archived).where(LogCursor.job_id == job_id))
            if position is None:
                return
            end = _end(session, job_id)
        while position < end:
            query = (
                select(LogChunk)
                .where(LogChunk.job_id == job_id, LogChunk.first_line >= position, LogChunk.first_line < end)
                .order_by(LogChunk.first_line)
                .limit(_ROWS)
            )
            with self.context.database.transaction() as session:
                rows = list(session.scalars(query))
            if not rows or rows[0].first_line != position:
                return  # another worker was faster
            yield from rows
            position = rows[-1].first_line + rows[-1].lines

    def _put(self, project_id: str, job_id: str, piece: _Piece) -> str:
        data = bytes(piece.writer.data)
        digest = hashlib.sha256(data).hexdigest()[:16]
        key = f"{logs_prefix(project_id, job_id)}{piece.parts[0].info.first_line:012d}-{digest}.zst"
        self.context.objects.put(key, data)
        return key

    def _commit(self, job_id: str, key: str, piece: _Piece) -> bool:
        """Whether the lines are where this piece is now; False: another worker was faster, or the job is gone."""
        first = piece.parts[0].info.first_line
        with self.context.database.transaction() as session:
            # Of a job that is being deleted, the files may have been removed already.
            kept = select(LogCursor).join(Job, Job.id == LogCursor.job_id).where(Job.desired != Desired.DELETED)
            mine = kept.where(LogCursor.job_id == job_id).with_for_update(of=LogCursor)
            cursor = session.scalars(mine).one_or_none()
            if cursor is not None and cursor.archived == first:
                session.add_all(_frame(cursor, key, part) for part in piece.parts)
                moved = (LogChunk.job_id == job_id) & (LogChunk.first_line >= first)
                session.execute(delete(LogChunk).where(moved, LogChunk.first_line < piece.end))
                cursor.archived = piece.end
                return True
        if cursor is None:
            self.context.objects.delete([key])
        return False

    def _settle(self, job_id: str) -> None:
        """Nothing more is due, unless lines have come meanwhile."""
        with self.context.database.transaction() as session:
            # Late lines are appended behind the same lock, and make their attempt due again.
            cursor = session.scalars(
                select(LogCursor).where(LogCursor.job_id == job_id).with_for_update()
            ).one_or_none()
            if cursor is None or cursor.archived < _end(session, job_id):
                return
            done = (Attempt.job_id == job_id) & Attempt.ended_at.is_not(None)
            session.execute(update(Attempt).where(done).values(logs_due=None))


def _end(session: Session, job_id: str) -> int:
    """The line up to which all attempts are over: an open one may still repeat what it sent last."""
    opened = (
        select(LogChunk.first_line)
        .join(Attempt, (Attempt.job_id == LogChunk.job_id) & (Attempt.n == LogChunk.attempt))
        .where(LogChunk.job_id == job_id, Attempt.ended_at.is_(None))
        .order_by(LogChunk.first_line)
        .limit(1)
    )
    first = session.scalar(opened)
    if first is not None:
        return first
    return session.scalar(select(LogCursor.next_line).where(LogCursor.job_id == job_id)) or 0


def _frame(cursor: LogCursor, key: str, part: _Part) -> LogFrame:
    info = part.info
    return LogFrame(
        job_id=cursor.job_id,
        first_line=info.first_line,
        project_id=cursor.project_id,
        lines=info.lines,
        object=key,
        start=info.start,
        size=info.size,
        attempts=info.attempts,
        ranks=info.ranks,
        latest=part.latest,
        arrived_at=part.arrived_at,
    )
