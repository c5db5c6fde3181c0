"""Taking in metrics: each call once, in one order, within the job's limits."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_api.context import Context
from weft_api.learner.auth import AttemptToken, fence, granted_learner
from weft_api.learner.schemas import MetricsCall
from weft_api.metrics.fold import fold, is_due
from weft_api.metrics.listing import keep_best_and_last
from weft_api.metrics.records import Record, cleaned, packed
from weft_core.settings import LimitSettings
from weft_core.store.jobs import record_event
from weft_core.store.models import Job, MetricBatch, MetricCursor

LIMITS: Mapping[str, str] = {
    "points": "the job has reported its limit of {metric_points_per_job:,} values: the rest is dropped",
    "bytes": "the job's metrics have reached their limit of {metric_bytes_per_job:,} bytes: the rest is dropped",
    "system": "the job's system metrics have reached their limit of {system_points_per_job:,} values: the rest is "
    "dropped",
    "series": "the job has its limit of {metric_series_per_job:,} metrics (each learner's and attempt's counted): "
    "further names are dropped",
}
"""What may be in a cursor's ``dropped``, and how it is told."""


def told(reason: str, limits: LimitSettings) -> str:
    return LIMITS[reason].format(**limits.model_dump())


def take_in(context: Context, token: AttemptToken, call: MetricsCall) -> None:
    """Append a call's records to the job's metrics. One that was taken in before changes nothing.

    Raises:
        Problem: stale_attempt.
    """
    limits = context.settings.limits
    with context.database.transaction() as session:
        job, attempt = fence(session, token, change=False)
        learner = granted_learner(session, attempt, call.rank, call.instance)
        if call.sequence < learner.metrics_next:
            return
        learner.metrics_next = call.sequence + 1
        if not call.records:
            return
        # The counter row is the lock: records get their numbers in the order in which they are committed.
        cursor = _cursor(session, job)
        user, system, reached = _fitting(cursor, call, attempt.n, limits)
        if user or system:
            _append(session, cursor, attempt.n, call.rank, user, system)
            keep_best_and_last(session, job, call.rank, user)
            if is_due(cursor):
                most = {"user": limits.metric_series_per_job, "system": 10 * limits.metric_series_per_job}
                if fold(session, cursor, most):
                    reached.append("series")
        for reason in reached:
            if reason not in cursor.dropped:
                cursor.dropped = [*cursor.dropped, reason]
                record_event(session, job, "warning", told(reason, limits), attempt=attempt.n)


def _cursor(session: Session, job: Job) -> MetricCursor:
    query = select(MetricCursor).where(MetricCursor.job_id == job.id).with_for_update()
    cursor = session.scalars(query).one_or_none()
    if cursor is None:
        made = insert(MetricCursor).values(job_id=job.id, project_id=job.project_id)
        session.execute(made.on_conflict_do_nothing())
        cursor = session.scalars(query).one()
    return cursor


def _fitting(
    cursor: MetricCursor, call: MetricsCall, attempt: int, limits: LimitSettings
) -> tuple[list[Record], list[Record], list[str]]:
    """The user's records and the system's, as far as there is room for them, and which limits were in the way."""
    user: list[Record] = []
    system: list[Record] = []
    reached: list[str] = []
    for one in call.records:
        record = cleaned(one, attempt, call.rank)
        count = len(record.values)
        if not count:
            continue
        if one.kind == "system":
            if cursor.system_points + count > limits.system_points_per_job:
                reached.append("system")
                continue
            cursor.system_points += count
            system.append(record)
        elif cursor.points + count > limits.metric_points_per_job:
            reached.append("points")
        elif cursor.bytes >= limits.metric_bytes_per_job:
            reached.append("bytes")
        else:
            cursor.points += count
            user.append(record)
    return user, system, reached


def _append(
    session: Session, cursor: MetricCursor, attempt: int, rank: int, user: list[Record], system: list[Record]
) -> None:
    body = packed(record.line() for record in (*user, *system))
    session.add(
        MetricBatch(
            job_id=cursor.job_id,
            n=cursor.next_batch,
            project_id=cursor.project_id,
            attempt=attempt,
            rank=rank,
            first_record=cursor.next_record,
            records=len(user),
            system=len(system),
            body=body,
        )
    )
    cursor.next_batch += 1
    cursor.next_record += len(user)
    cursor.bytes += len(body) if user else 0
    cursor.waiting += sum(len(record.values) for record in (*user, *system))
    session.flush()
