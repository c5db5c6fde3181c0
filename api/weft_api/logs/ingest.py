"""Taking in log lines: exactly once, in one order."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from weft_api.context import Context
from weft_api.learner.auth import AttemptToken, fence, granted_learner
from weft_api.learner.schemas import LogsCall
from weft_core.store.models import Attempt, LogChunk, LogCursor


@dataclass
class _Batch:
    texts: list[bytes]
    times: list[int]
    cut: bool = False

    @property
    def size(self) -> int:
        return sum(len(text) + 1 for text in self.texts)


def take_in(context: Context, token: AttemptToken, call: LogsCall) -> None:
    """Append a batch to the job's log. One that is there already, or has no line, changes nothing.

    Raises:
        Problem: stale_attempt.
    """
    batch = _batch(call)
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=False)
        granted_learner(session, attempt, call.rank, call.instance, lock=False)
        # The counter row is the lock: lines get their numbers in the order in which they are committed.
        cursor = session.scalars(select(LogCursor).where(LogCursor.job_id == job.id).with_for_update()).one()
        if not batch.texts or _is_there(session, attempt, call):
            return
        limit = context.settings.limits.log_bytes_per_job
        if cursor.bytes >= limit:
            return
        room = limit - cursor.bytes
        if batch.size > room:
            batch = _cut(batch, room, limit)
        session.add(
            LogChunk(
                job_id=job.id,
                first_line=cursor.next_line,
                project_id=job.project_id,
                attempt=attempt.n,
                rank=call.rank,
                sequence=call.sequence,
                lines=len(batch.texts),
                body=b"".join(text + b"\n" for text in batch.texts),
                times=batch.times,
            )
        )
        cursor.next_line += len(batch.texts)
        # A batch that was cut fills the log for good, so that it says so once.
        cursor.bytes += batch.size if not batch.cut else max(room, batch.size)
    context.metrics.log_lines.inc(len(batch.texts))
    context.metrics.log_bytes.inc(batch.size)
    context.wake.logs(job.id)


def _batch(call: LogsCall) -> _Batch:
    batch = _Batch([], [])
    for line in call.lines:
        # A newline inside a line is a line's end too, or the chunk would not split again.
        for text in line.s.split("\n"):
            batch.texts.append(text.encode())
            batch.times.append(line.t)
    return batch


def _is_there(session: Session, attempt: Attempt, call: LogsCall) -> bool:
    query = select(LogChunk.first_line).where(
        LogChunk.job_id == attempt.job_id,
        LogChunk.attempt == attempt.n,
        LogChunk.rank == call.rank,
        LogChunk.sequence == call.sequence,
    )
    return session.scalar(query) is not None


def _cut(batch: _Batch, room: int, limit: int) -> _Batch:
    """The lines that fit into ``room``, and one that says that the rest is missing."""
    kept = _Batch([], [], cut=True)
    for text, at in zip(batch.texts, batch.times, strict=True):
        room -= len(text) + 1
        if room < 0:
            marker = f"[weft] the job's log has reached its limit of {limit} bytes: lines from here on are dropped"
            kept.texts.append(marker.encode())
            kept.times.append(at)
            break
        kept.texts.append(text)
        kept.times.append(at)
    return kept
