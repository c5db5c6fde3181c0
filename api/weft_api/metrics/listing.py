"""The newest and the best values of jobs, for lists: kept as records come, sorted and filtered by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from weft_api.metrics.records import Record, shown_name
from weft_api.metrics.schemas import BestAndLast
from weft_core.store.models import Job, JobMetric
from weft_core.store.scope import Scope

_MOST = 200
"""Metrics of a job that lists know; the first ones that it reports."""


class Point(NamedTuple):
    step: int | None
    time: int
    value: float


def keep_best_and_last(session: Session, job: Job, records: Iterable[Record]) -> None:
    """Update the values for lists. A metric's values are those of the lowest rank that reports it."""
    found: dict[str, tuple[int, list[Point]]] = {}
    for record in records:
        for name, value in record.numbers():
            shown = shown_name(record.group, name)
            rank, points = found.get(shown, (record.rank, []))
            if record.rank < rank:
                rank, points = record.rank, []
            if record.rank == rank:
                points.append(Point(record.step, record.t, value))
            found[shown] = (rank, points)
    if not found:
        return
    query = select(JobMetric).where(JobMetric.job_id == job.id, JobMetric.name.in_(found))
    rows = {row.name: row for row in session.scalars(query)}
    new = [name for name in found if name not in rows]
    if new:
        have = session.scalar(select(func.count()).where(JobMetric.job_id == job.id)) or 0
        for name in new[: max(0, _MOST - have)]:
            rows[name] = JobMetric(job_id=job.id, project_id=job.project_id, name=name, rank=found[name][0])
            session.add(rows[name])
    for name, (rank, points) in found.items():
        if name in rows and rank <= rows[name].rank:
            _bring_up_to_date(rows[name], rank, points)


def _bring_up_to_date(row: JobMetric, rank: int, points: Sequence[Point]) -> None:
    finite = [point.value for point in points if math.isfinite(point.value)]
    if rank < row.rank:
        row.rank, row.min, row.max = rank, None, None
    row.min = min([*finite, *([] if row.min is None else [row.min])], default=None)
    row.max = max([*finite, *([] if row.max is None else [row.max])], default=None)
    row.step, row.time, last = points[-1]
    row.last = last if math.isfinite(last) else None


def best_and_last(scope: Scope, job_ids: Sequence[str]) -> dict[str, dict[str, BestAndLast]]:
    """The values by job and name. A job without metrics has an entry, too."""
    found: dict[str, dict[str, BestAndLast]] = {job_id: {} for job_id in job_ids}
    query = scope.select(JobMetric, JobMetric.job_id.in_(job_ids)).order_by(JobMetric.name)
    columns = (JobMetric.last, JobMetric.min, JobMetric.max, JobMetric.step, JobMetric.time)
    for job, name, *values in scope.session.execute(
        query.with_only_columns(JobMetric.job_id, JobMetric.name, *columns)
    ):
        found[job][name] = BestAndLast(**dict(zip(("last", "min", "max", "step", "time"), values, strict=True)))
    return found
