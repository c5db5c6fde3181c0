"""Series as they stand now: their folded points, and the points that still wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from sqlalchemy import Row
from sqlalchemy.orm import Session

from weft_api.metrics.points import Points
from weft_api.metrics.records import Key, Pending, Record, all_parsed, pending, unpacked
from weft_core.store.models import MetricBatch, MetricSeries
from weft_core.store.scope import Scope


@dataclass(frozen=True)
class Stats:
    """The statistics of a series; ``min`` and ``max`` are those of its finite values."""

    points: int
    first_step: int
    last_step: int
    first_time: int
    last_time: int
    last: float
    min: float | None
    max: float | None

    @classmethod
    def of_row(cls, row: Row[MetricSeries] | MetricSeries) -> Stats:
        return cls(*(getattr(row, name) for name in cls.__dataclass_fields__))

    @classmethod
    def extended(cls, before: Stats | None, by: Points) -> Stats:
        """After more points, at least one."""
        finite = by.values[np.isfinite(by.values)]
        lowest = [] if before is None or before.min is None else [before.min]
        highest = [] if before is None or before.max is None else [before.max]
        if len(finite):
            lowest.append(float(finite.min()))
            highest.append(float(finite.max()))
        return cls(
            points=(before.points if before else 0) + len(by),
            first_step=before.first_step if before else int(by.steps[0]),
            last_step=int(by.steps[-1]),
            first_time=before.first_time if before else int(by.times[0]),
            last_time=int(by.times[-1]),
            last=float(by.values[-1]),
            min=min(lowest, default=None),
            max=max(highest, default=None),
        )


@dataclass(frozen=True)
class Series:
    """A metric of a learner in an attempt. ``id`` is None while no point is folded; ``tail`` waits to be folded."""

    key: Key
    id: int | None
    folded: Stats | None
    tail: Points

    @property
    def stats(self) -> Stats:
        if not len(self.tail):
            assert self.folded is not None  # there is no series without a point
            return self.folded
        return Stats.extended(self.folded, self.tail)


@dataclass(frozen=True)
class SeriesFilter:
    """Which series; empty members limit nothing."""

    kind: str | None = None
    learner: int | None = None
    attempt: int | None = None
    names: Sequence[str] = ()

    def takes(self, key: Key) -> bool:
        return (
            self.kind in (None, key.kind)
            and self.learner in (None, key.rank + 1)
            and self.attempt in (None, key.attempt)
            and (not self.names or key.shown in self.names or (key.kind == "system" and key.name in self.names))
        )


def completed(reported: Pending, before: Stats | None) -> Points:
    """The points, each with a step. A point that came without a step gets the step after the previous point's."""
    following = before.last_step + 1 if before else 0
    steps = []
    for step in reported.steps:
        steps.append(following if step is None else step)
        following = steps[-1] + 1
    return Points.of(steps, reported.times, reported.values)


def read_lines(batches: Iterable[MetricBatch]) -> tuple[list[bytes], list[bytes]]:
    """The records of batches that are not folded, as they are kept, in order: the user's and the system's."""
    user: list[bytes] = []
    system: list[bytes] = []
    for batch in batches:
        lines = unpacked(batch.body)
        user += lines[: batch.records]
        system += lines[batch.records :]
    return user, system


def points_of(user: Iterable[Record], system: Iterable[Record]) -> dict[Key, Pending]:
    """The points of records by series."""
    return pending(chain((("user", record) for record in user), (("system", record) for record in system)))


def load(scope: Scope, job_id: str, wanted: SeriesFilter) -> list[Series]:
    """A job's series, by attempt, learner and name. The caller's transaction is of :func:`snapshot`."""
    query = scope.select(MetricSeries, MetricSeries.job_id == job_id)
    batches = scope.select(MetricBatch, MetricBatch.job_id == job_id).order_by(MetricBatch.n)
    if wanted.kind is not None:
        query = query.where(MetricSeries.kind == wanted.kind)
        batches = batches.where((MetricBatch.records if wanted.kind == "user" else MetricBatch.system) > 0)
    if wanted.learner is not None:
        query = query.where(MetricSeries.rank == wanted.learner - 1)
        batches = batches.where(MetricBatch.rank == wanted.learner - 1)
    if wanted.attempt is not None:
        query = query.where(MetricSeries.attempt == wanted.attempt)
        batches = batches.where(MetricBatch.attempt == wanted.attempt)
    tails = {
        key: tail
        for key, tail in points_of(*map(all_parsed, read_lines(scope.all(batches)))).items()
        if wanted.takes(key)
    }
    found = []
    # Columns, not objects: there may be thousands.
    for row in scope.session.execute(query.with_only_columns(*MetricSeries.__table__.columns)):
        key = Key(row.attempt, row.rank, row.kind, row.group, row.name)
        if wanted.takes(key):
            stats = Stats.of_row(row)
            tail = tails.pop(key, None)
            found.append(Series(key, row.id, stats, completed(tail, stats) if tail else NO_POINTS))
    found += [Series(key, None, None, completed(tail, None)) for key, tail in tails.items()]
    return sorted(
        found, key=lambda series: (series.key.attempt, series.key.rank, series.key.kind != "user", series.key.shown)
    )


def snapshot(session: Session) -> Session:
    """Make all that this transaction reads be as of one moment, as batches may be folded at any; called first in it."""
    session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    return session


NO_POINTS = Points.of([], [], [])
