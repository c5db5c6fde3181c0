"""Taking in log lines: exactly once, in one order."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_api.context import Context
from weft_api.learner.auth import AttemptToken, fence, granted_learner, late_fence
from weft_api.logs.batches import Batch
from weft_api.problems import LOG_FULL, TOO_MANY_LINES, Problem
from weft_core.log_archive import pack_times
from weft_core.settings import LimitSettings
from weft_core.store.models import Attempt, LogChunk, LogCursor, LogSource

_CATCH_UP = 5
"""How much faster than its job may log an agent may send: it may have been cut off for a while."""
_CLOSING_BYTES, _CLOSING_ROOM = 1024, 64 << 10
"""A full log still takes a learner's word of what it left out: single lines of this size, and so much of them."""


def take_in(context: Context, token: AttemptToken, batch: Batch) -> None:
    """Append a batch to the job's log. One that is there already, or has no line, changes nothing.

    Raises:
        Problem: stale_attempt, log_full, too_many_lines.
    """
    head, limits = batch.head, context.settings.limits
    with context.database.transaction() as session:
        job, attempt = late_fence(session, token) if head.late else fence(session, token, change=False)
        granted_learner(session, attempt, head.rank, head.instance, lock=False)
        # The counter row is the lock: lines get their numbers in the order in which they are committed.
        locked = select(LogCursor, func.now()).where(LogCursor.job_id == job.id).with_for_update()
        cursor, now = session.execute(locked).one()
        if not batch.times or not _is_new(session, attempt, batch):
            return
        room = limits.log_bytes_per_job - cursor.bytes
        size = len(batch.body)
        if room <= 0 and not (size <= _CLOSING_BYTES and len(batch.times) == 1 and room + _CLOSING_ROOM >= size):
            raise Problem(LOG_FULL, f"it has {cursor.bytes} bytes, and may have {limits.log_bytes_per_job}")
        _pay(cursor, now, limits, batch)
        if 0 < room < size:
            batch = _cut(batch, room, limits.log_bytes_per_job)
            # It fills the log for good, so that this is said once.
            size = max(room, len(batch.body))
        lines = len(batch.times)
        cursor.latest = max(cursor.latest, *batch.times)
        session.add(
            LogChunk(
                job_id=job.id,
                first_line=cursor.next_line,
                project_id=job.project_id,
                attempt=attempt.n,
                rank=head.rank,
                lines=lines,
                body=batch.body,
                times=pack_times(batch.times),
                latest=cursor.latest,
            )
        )
        cursor.next_line += lines
        cursor.bytes += size
        if attempt.ended_at is not None:
            attempt.logs_due = func.now()
    context.metrics.log_lines.inc(lines)
    context.metrics.log_bytes.inc(len(batch.body))
    context.wake.logs(job.id)


def _is_new(session: Session, attempt: Attempt, batch: Batch) -> bool:
    """Whether this batch has not been taken in before; from now on it counts as that."""
    head = batch.head
    statement = insert(LogSource).values(
        job_id=attempt.job_id,
        attempt=attempt.n,
        rank=head.rank,
        project_id=attempt.project_id,
        next_sequence=head.sequence + 1,
    )
    later = statement.on_conflict_do_update(
        index_elements=["job_id", "attempt", "rank"],
        set_={"next_sequence": head.sequence + 1, "written_at": func.now()},
        where=LogSource.next_sequence <= head.sequence,
    )
    return session.scalar(later.returning(LogSource.next_sequence)) is not None


def _pay(cursor: LogCursor, now: datetime, limits: LimitSettings, batch: Batch) -> None:
    """Count the batch against the rate limit. Raises Problem too_many_lines when the job has used up its burst."""
    lines = len(batch.times) / limits.log_lines_per_second if limits.log_lines_per_second else 0.0
    size = len(batch.body) / limits.log_bytes_per_second if limits.log_bytes_per_second else 0.0
    begin = max(cursor.paid_until or now, now)
    if begin - now > timedelta(seconds=limits.log_burst_seconds):
        raise Problem(
            TOO_MANY_LINES,
            f"it may log {limits.log_lines_per_second} lines and {limits.log_bytes_per_second} bytes a second",
        )
    cursor.paid_until = begin + timedelta(seconds=max(lines, size) / _CATCH_UP)


def _cut(batch: Batch, room: int, limit: int) -> Batch:
    """The lines that fit into ``room``, and one that says that the rest is missing."""
    kept = batch.body.rfind(b"\n", 0, room) + 1
    lines = batch.body.count(b"\n", 0, kept)
    marker = (
        f"[weft] the job's log has reached its limit of {limit} bytes: lines from here on are left out; each learner's "
        "training-log.txt, which is stored with the results, goes on\n"
    )
    return Batch(batch.head, batch.body[:kept] + marker.encode(), batch.times[: lines + 1])
