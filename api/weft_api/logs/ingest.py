"""Taking in log lines: exactly once, in one order."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from fastapi.exceptions import RequestValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from weft_api.access.attempts import Accepted, AttemptToken, fence, granted_learners, late_fence
from weft_api.context import Context, Shared
from weft_api.http.problems import LOG_FULL, TOO_MANY_LINES, Problem
from weft_api.logs.batches import Batch, NewChunk, parse_batch
from weft_api.logs.rules import check_rules
from weft_api.streaming.batch_queue import BatchQueue
from weft_api.telemetry import METRICS
from weft_core.log_archive import pack_times
from weft_core.settings import LimitSettings
from weft_core.store.models import Attempt, Job, LogCursor, LogSource

_CATCH_UP = 5
"""How much faster than its job may log an agent may send: it may have been cut off for a while."""
# Statements of their own: to build them from the models takes a third of what a gang's small batches cost.
_PUT_CHUNKS = """
    insert into log_chunks (job_id, project_id, attempt, first_line, rank, lines, body, times, latest)
    select %s, %s, %s, given.*
    from unnest(%s::bigint[], %s::integer[], %s::integer[], %b::bytea[], %b::bytea[], %s::bigint[]) as given
"""
_PUT_SOURCES = """
    insert into log_sources (job_id, attempt, project_id, rank, next_sequence)
    select %s, %s, %s, rank, next_sequence from unnest(%s::integer[], %s::bigint[]) as given (rank, next_sequence)
    on conflict (job_id, attempt, rank) do update set next_sequence = excluded.next_sequence, written_at = now()
"""
_CLOSING_BYTES, _CLOSING_ROOM = 1024, 64 << 10
"""A full log still accepts a learner's reports of the lines that it left out: single lines of this size, and up to this
total."""


QUEUE: Shared[BatchQueue[bytes, Accepted]] = Shared(lambda _: BatchQueue())


async def accept(context: Context, token: AttemptToken, body: bytes) -> Accepted:
    """Pass one body to :func:`take_in`, together with those of the same attempt that wait. Raises what it finds."""
    return await QUEUE.of(context).run(token.sha256, body, lambda bodies: take_in(context, token, bodies))


def take_in(context: Context, token: AttemptToken, calls: Sequence[bytes]) -> list[Accepted | Exception]:
    """Append batches of one attempt's learners to the job's log, all in one transaction. One that is there already, or
    has no line, changes nothing.

    Args:
        calls: each a LogsCall, as it came.

    Returns:
        The outcome of each call; a Problem (stale_attempt, log_full, too_many_lines) or a RequestValidationError
        concerns that call only.
    """
    outcomes: dict[int, Accepted | Exception] = {}
    batches: dict[int, Batch] = {}
    for number, call in enumerate(calls):
        try:
            batches[number] = parse_batch(call)
        except (Problem, RequestValidationError) as error:
            outcomes[number] = error
    for late in (False, True):
        group = {number: batch for number, batch in batches.items() if batch.head.late is late}
        if not group:
            continue
        try:
            outcomes.update(zip(group, _append(context, token, list(group.values()), late), strict=True))
        except Problem as error:
            outcomes.update(dict.fromkeys(group, error))
    return [outcomes[number] for number in range(len(calls))]


def _append(context: Context, token: AttemptToken, batches: Sequence[Batch], late: bool) -> list[Accepted | Exception]:
    with context.database.transaction() as session:
        job, attempt = late_fence(session, token) if late else fence(session, token, change=False)
        granted = granted_learners(session, attempt, [(batch.head.rank, batch.head.instance) for batch in batches])
        own = [batch for batch, refusal in zip(batches, granted, strict=True) if refusal is None]
        refused, chunks = append(session, job, attempt, own, context.settings.limits)
    announce(context, job.id, chunks)
    told = iter(refused)
    return [refusal or next(told) or Accepted(job.id, attempt.n) for refusal in granted]


def append(
    session: Session, job: Job, attempt: Attempt, batches: Sequence[Batch], limits: LimitSettings
) -> tuple[list[Problem | None], list[NewChunk]]:
    """Append batches to the job's log. A batch that was taken in before, or has no line, changes nothing.

    Args:
        session: the transaction that has fenced the attempt.
        job: the job.
        attempt: the attempt whose learners send the batches.
        batches: each from the agent that holds its rank's start grant.
        limits: the settings.

    Returns:
        The refusal of each batch (log_full, too_many_lines) or None, and what is new, for :func:`announce`.
    """
    if not batches:
        return [], []
    # The counter row is the lock: lines get their numbers in the order in which they are committed.
    locked = select(LogCursor, func.now()).where(LogCursor.job_id == job.id).with_for_update()
    cursor, now = session.execute(locked).one()
    ranks = {batch.head.rank for batch in batches}
    of_attempt = (LogSource.job_id == job.id) & (LogSource.attempt == attempt.n)
    known = session.execute(
        select(LogSource.rank, LogSource.next_sequence).where(of_attempt, LogSource.rank.in_(ranks))
    )
    following = ChainMap({}, {row.rank: row.next_sequence for row in known})
    chunks: list[NewChunk] = []
    refused: list[Problem | None] = []
    for batch in batches:
        head = batch.head
        refusal = None
        if batch.times and head.sequence >= following.get(head.rank, 0):
            try:
                chunks.append(_chunk(cursor, now, limits, batch))
                following[head.rank] = head.sequence + 1
            except Problem as error:
                refusal = error
        refused.append(refusal)
    if chunks:
        _put(session, attempt, chunks)
        _note_sources(session, attempt, following.maps[0])
        check_rules(session, job, attempt.n, chunks)
        if attempt.ended_at is not None:
            attempt.logs_due = func.now()
    return refused, chunks


def announce(context: Context, job_id: str, chunks: Sequence[NewChunk]) -> None:
    """Count what :func:`append` has added, and wake the log's followers. The transaction has been committed."""
    if chunks:
        METRICS.of(context).log_lines.inc(sum(chunk.lines for chunk in chunks))
        METRICS.of(context).log_bytes.inc(sum(len(chunk.body) for chunk in chunks))
        context.wake.logs(job_id)


def _chunk(cursor: LogCursor, now: datetime, limits: LimitSettings, batch: Batch) -> NewChunk:
    """The batch at the end of the log, which has grown by it. Raises Problem: log_full, too_many_lines."""
    room = limits.log_bytes_per_job - cursor.bytes
    size = len(batch.body)
    if room <= 0 and not (size <= _CLOSING_BYTES and len(batch.times) == 1 and room + _CLOSING_ROOM >= size):
        raise Problem(LOG_FULL, f"it has {cursor.bytes} bytes, and may have {limits.log_bytes_per_job}")
    _pay(cursor, now, limits, batch)
    if 0 < room < size:
        batch = _cut(batch, room, limits.log_bytes_per_job)
        # It fills the log for good, so that this message appears once.
        size = max(room, len(batch.body))
    cursor.latest = max(cursor.latest, *batch.times)
    chunk = NewChunk(
        first_line=cursor.next_line,
        rank=batch.head.rank,
        lines=len(batch.times),
        body=batch.body,
        times=pack_times(batch.times),
        latest=cursor.latest,
    )
    cursor.next_line += chunk.lines
    cursor.bytes += size
    return chunk


def _put(session: Session, attempt: Attempt, chunks: Sequence[NewChunk]) -> None:
    columns = map(list, zip(*chunks, strict=True))
    values = attempt.job_id, attempt.project_id, attempt.n, *columns
    session.connection().exec_driver_sql(_PUT_CHUNKS, values)


def _note_sources(session: Session, attempt: Attempt, following: Mapping[int, int]) -> None:
    """How far these learners' batches have been taken in by now."""
    ranks = sorted(following)
    values = attempt.job_id, attempt.n, attempt.project_id, ranks, [following[rank] for rank in ranks]
    session.connection().exec_driver_sql(_PUT_SOURCES, values)


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
