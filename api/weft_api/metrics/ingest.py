"""Taking in metrics: each call once, in one order, within the job's limits."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fastapi.exceptions import RequestValidationError
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_api.access.attempts import Accepted, AttemptToken, fence, granted_learners
from weft_api.context import Context, Shared
from weft_api.http.bodies import parse_json, validated
from weft_api.http.problems import TOO_LARGE, Problem
from weft_api.metrics.folding import FOLDING
from weft_api.metrics.limits import note_drops
from weft_api.metrics.listing import keep_best_and_last
from weft_api.metrics.records import Record, cleaned, packed
from weft_api.metrics.rules import check_rules
from weft_api.metrics.schemas import MetricsCall, RecordIn
from weft_api.streaming.batch_queue import BatchQueue
from weft_core.settings import LimitSettings
from weft_core.store.models import Attempt, Job, Learner, MetricCursor

MOST_VALUES = 20_000
"""Values in a call. The agent sends fewer (``METRIC_BATCH_BYTES`` in ``weft_trainer.service.spool``)."""


# Statements of their own: to build them from the models takes a third of what a gang's small calls cost.
_PUT_BATCHES = """
    insert into metric_batches (job_id, project_id, attempt, n, rank, first_record, records, system, body)
    select %s, %s, %s, given.*
    from unnest(%s::bigint[], %s::integer[], %s::bigint[], %s::integer[], %s::integer[], %b::bytea[]) as given
"""
_NOTE_LEARNERS = """
    update learners set metrics_next = given.next from unnest(%s::integer[], %s::bigint[]) as given (rank, next)
    where learners.attempt_id = %s and learners.rank = given.rank
"""


class _NewBatch(NamedTuple):
    """A :class:`MetricBatch` that is to be stored."""

    n: int
    rank: int
    first_record: int
    records: int
    system: int
    body: bytes


QUEUE: Shared[BatchQueue[bytes, Accepted]] = Shared(lambda _: BatchQueue(threads=4))


async def accept(context: Context, token: AttemptToken, body: bytes) -> Accepted:
    """Pass one body to :func:`take_in`, together with those of the same attempt that wait. Raises what it finds."""
    return await QUEUE.of(context).run(token.sha256, body, lambda bodies: take_in(context, token, bodies))


def take_in(context: Context, token: AttemptToken, bodies: Sequence[bytes]) -> list[Accepted | Exception]:
    """Append calls of one attempt's learners to the job's metrics, all in one transaction. One that was taken in before
    changes nothing.

    Args:
        bodies: each a MetricsCall, as it came.

    Returns:
        The outcome of each call; a Problem (stale_attempt) or a RequestValidationError concerns that call only.
    """
    outcomes: dict[int, Accepted | Exception] = {}
    calls: dict[int, MetricsCall] = {}
    for number, body in enumerate(bodies):
        try:
            calls[number] = read_call(parse_json(body))
        except (Problem, RequestValidationError) as error:
            outcomes[number] = error
    if calls:
        try:
            outcomes.update(zip(calls, _append(context, token, list(calls.values())), strict=True))
        except Problem as error:
            outcomes.update(dict.fromkeys(calls, error))
    return [outcomes[number] for number in range(len(bodies))]


def read_call(told: Any) -> MetricsCall:
    """A MetricsCall from its JSON. Raises Problem, RequestValidationError."""
    records = told.get("records") if isinstance(told, dict) else None
    values = sum(_size(record) for record in records) if isinstance(records, list) else 0
    if values > MOST_VALUES:  # before each of them is looked at
        raise Problem(
            TOO_LARGE,
            f"the call has {values:,} values; a call may have {MOST_VALUES:,}: send more calls",
        )
    return validated(MetricsCall, told)


def _size(record: Any) -> int:
    values = record.get("values") if isinstance(record, dict) else None
    return len(values) if isinstance(values, dict) else 0


def _append(context: Context, token: AttemptToken, calls: Sequence[MetricsCall]) -> list[Accepted | Exception]:
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=False)
        granted = granted_learners(session, attempt, [(call.rank, call.instance) for call in calls])
        own = [call for call, refusal in zip(calls, granted, strict=True) if refusal is None]
        cursor = take_calls(session, job, attempt, own, context.settings.limits)
    FOLDING.of(context).fold_if_due(cursor)
    return [refusal or Accepted(job.id, attempt.n) for refusal in granted]


def take_calls(
    session: Session, job: Job, attempt: Attempt, calls: Sequence[MetricsCall], limits: LimitSettings
) -> MetricCursor | None:
    """Append the records of calls that are new.

    Args:
        session: the transaction that has fenced the attempt.
        job: the job.
        attempt: the attempt whose learners send the calls.
        calls: each from the agent that holds its rank's start grant.
        limits: the settings.

    Returns:
        The job's cursor, for :meth:`Folding.fold_if_due` after the commit; None if there are no calls.
    """
    if not calls:
        return None
    cursor = lock_cursor(session, job)
    ranks = {call.rank for call in calls}
    query = select(Learner.rank, Learner.metrics_next).where(Learner.attempt_id == attempt.id, Learner.rank.in_(ranks))
    following = ChainMap({}, {row.rank: row.metrics_next for row in session.execute(query)})
    new: list[tuple[int, Sequence[RecordIn]]] = []
    for call in calls:
        if call.sequence >= following[call.rank]:
            following[call.rank] = call.sequence + 1
            new.append((call.rank, call.records))
    if new:
        _note_learners(session, attempt, following.maps[0])
    append(session, job, cursor, attempt.n, new, limits)
    return cursor


def append(
    session: Session,
    job: Job,
    cursor: MetricCursor,
    attempt: int,
    batches: Iterable[tuple[int, Sequence[RecordIn]]],
    limits: LimitSettings,
) -> None:
    """Append records to the job's metrics, as far as its limits allow. They wait to be folded; reads find them.

    Args:
        session: the transaction that has locked ``cursor``.
        job: the job.
        cursor: the job's, from :func:`lock_cursor`.
        attempt: the attempt that has measured all of them.
        batches: the records with the rank that has measured them.
        limits: the settings.
    """
    kept: list[Record] = []
    made: list[_NewBatch] = []
    room = _Room(cursor, limits)
    for rank, records in batches:
        user, system = room.take(records, attempt, rank)
        if user or system:
            made.append(room.batch(rank, user, system))
            kept += user
    room.settle()
    if made:
        columns = map(list, zip(*made, strict=True))
        session.connection().exec_driver_sql(_PUT_BATCHES, (job.id, job.project_id, attempt, *columns))
    keep_best_and_last(session, job, kept)
    check_rules(session, job, cursor, kept)
    note_drops(session, job, cursor, attempt, room.reached, limits)


def _note_learners(session: Session, attempt: Attempt, following: Mapping[int, int]) -> None:
    """How far these learners' calls have been taken in by now."""
    ranks = sorted(following)
    values = ranks, [following[rank] for rank in ranks], attempt.id
    session.connection().exec_driver_sql(_NOTE_LEARNERS, values)


def lock_cursor(session: Session, job: Job) -> MetricCursor:
    """The job's counter row, locked: records get their numbers in the order in which they are committed."""
    query = select(MetricCursor).where(MetricCursor.job_id == job.id).with_for_update()
    cursor = session.scalars(query).one_or_none()
    if cursor is None:
        made = insert(MetricCursor).values(job_id=job.id, project_id=job.project_id)
        session.execute(made.on_conflict_do_nothing())
        cursor = session.scalars(query).one()
    return cursor


class _Room:
    """What a job may still report, and the numbers of its next batches. They are plain numbers until :meth:`settle`:
    columns of a row take long to change, and each record changes several."""

    def __init__(self, cursor: MetricCursor, limits: LimitSettings) -> None:
        self._cursor = cursor
        self._limits = limits
        self._points, self._system_points, self._bytes = cursor.points, cursor.system_points, cursor.bytes
        self._next_batch, self._next_record, self._waiting = cursor.next_batch, cursor.next_record, cursor.waiting
        self.reached: list[str] = []
        """The limits that were in the way."""

    def take(self, records: Sequence[RecordIn], attempt: int, rank: int) -> tuple[list[Record], list[Record]]:
        """The user's records and the system's, as far as there is room for them."""
        limits = self._limits
        user: list[Record] = []
        system: list[Record] = []
        for reported in records:
            record = cleaned(reported, attempt, rank)
            count = len(record.values)
            if not count:
                continue
            if reported.kind == "system":
                if self._system_points + count > limits.system_points_per_job:
                    self.reached.append("system")
                    continue
                self._system_points += count
                system.append(record)
            elif self._points + count > limits.metric_points_per_job:
                self.reached.append("points")
            elif self._bytes >= limits.metric_bytes_per_job:
                self.reached.append("bytes")
            else:
                self._points += count
                user.append(record)
        return user, system

    def batch(self, rank: int, user: list[Record], system: list[Record]) -> _NewBatch:
        """The next batch, with these records."""
        body = packed(record.line() for record in (*user, *system))
        made = _NewBatch(self._next_batch, rank, self._next_record, len(user), len(system), body)
        self._next_batch += 1
        self._next_record += len(user)
        self._bytes += len(body) if user else 0
        self._waiting += sum(len(record.values) for record in (*user, *system))
        return made

    def settle(self) -> None:
        """Write the numbers down in the cursor."""
        cursor = self._cursor
        cursor.points, cursor.system_points, cursor.bytes = self._points, self._system_points, self._bytes
        cursor.next_batch, cursor.next_record, cursor.waiting = self._next_batch, self._next_record, self._waiting
