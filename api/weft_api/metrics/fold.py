"""Folding: batches that waited become chunks of records and blocks of series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ARRAY, BigInteger, Integer, any_, delete, func, literal, select, text
from sqlalchemy.orm import Session

from weft_api.metrics.limits import note_drops
from weft_api.metrics.points import BLOCK, Points, rises, summary
from weft_api.metrics.records import Key, Pending, Record, all_parsed, packed
from weft_api.metrics.series import Stats, completed, points_of, read_lines
from weft_api.metrics.unhurried import unhurried
from weft_core.settings import LimitSettings
from weft_core.store.database import Database
from weft_core.store.models import Job, MetricBatch, MetricBlock, MetricCursor, MetricRecords, MetricSeries

_LEAST = 2048
"""Points that wait before a fold: reading them costs a few milliseconds."""
_PER_SERIES = 8
"""As many for each series, too: a fold writes a block of each."""
_OVERDUE = 8
"""How many times as many may wait before those who bring more have to wait for a fold."""
_NOTHING = Stats(0, 0, 0, 0, 0, 0.0, None, None)
_PUT_SERIES = text(
    """
    insert into metric_series
      (job_id, project_id, attempt, rank, kind, "group", name,
       points, first_step, last_step, first_time, last_time, last)
    select :job, :project, *, 0, 0, 0, 0, 0, 0
    from unnest(cast(:attempts as int[]), cast(:ranks as int[]), cast(:kinds as text[]), cast(:groups as text[]),
      cast(:names as text[]))
    returning id, attempt, rank, kind, "group", name
    """
)
# Statements of their own: the models' run once for each row.
_PUT_BLOCKS = """
    insert into metric_blocks (
      project_id, series_id, n, points, first_step, last_step, first_time, last_time, steps_rise, times_rise, summary,
      body
    )
    select %s, given.*
    from unnest(%s::bigint[], %s::integer[], %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
      %s::boolean[], %s::boolean[], %b::bytea[], %b::bytea[]) as given
    on conflict (series_id, n) do update set
      points = excluded.points, first_step = excluded.first_step, last_step = excluded.last_step,
      first_time = excluded.first_time, last_time = excluded.last_time, steps_rise = excluded.steps_rise,
      times_rise = excluded.times_rise, summary = excluded.summary, body = excluded.body
"""
_PUT_STATS = """
    update metric_series set
      points = given.points, first_step = given.first_step, last_step = given.last_step,
      first_time = given.first_time, last_time = given.last_time, last = given.last, min = given.min, max = given.max
    from unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::float8[],
      %s::float8[], %s::float8[])
      as given (id, points, first_step, last_step, first_time, last_time, last, min, max)
    where metric_series.id = given.id
"""
_NEW_SERIES = ("attempts", "ranks", "kinds", "groups", "names")


@dataclass(frozen=True)
class _Known:
    id: int
    stats: Stats


class _NewBlock(NamedTuple):
    """A :class:`MetricBlock` that is to be stored, or stored anew with more points."""

    series_id: int
    n: int
    points: int
    first_step: int
    last_step: int
    first_time: int
    last_time: int
    steps_rise: bool
    times_rise: bool
    summary: bytes
    body: bytes


def is_due(cursor: MetricCursor) -> bool:
    return cursor.waiting >= _due_at(cursor)


def is_overdue(cursor: MetricCursor) -> bool:
    """More waits than folds on the side keep up with."""
    return cursor.waiting >= _OVERDUE * _due_at(cursor)


def _due_at(cursor: MetricCursor) -> int:
    return max(_LEAST, _PER_SERIES * cursor.series)


def fold(database: Database, job_id: str, limits: LimitSettings, *, wait: bool = False) -> None:
    """Fold all that waits of a job, in a transaction of its own.

    A gang of a thousand learners has thousands of series, and a fold of them may take a second. Records are taken
    in meanwhile: the cursor is locked only at the end. The lock on the job's row keeps the job from being deleted, and
    its metrics from being removed.

    Args:
        database: the database.
        job_id: the job's. Nothing happens if it has been deleted.
        limits: the settings.
        wait: if another fold of the job is under way, wait for its end, and then fold if that is still due; else do
            nothing.
    """
    with database.transaction() as session:
        mine = select(Job).where(Job.id == job_id).with_for_update(read=True, key_share=True)
        job = session.scalars(mine).one_or_none()
        if job is None or not _lock(session, job_id, wait):
            return
        of_job = select(MetricCursor).where(MetricCursor.job_id == job_id)
        if not is_due(session.scalars(of_job).one()):  # another fold has just ended
            return
        query = select(MetricBatch).where(MetricBatch.job_id == job_id).order_by(MetricBatch.n)
        batches = list(session.scalars(query))
        lines, system_lines = read_lines(unhurried(batches))
        user, system = (list(unhurried(all_parsed(part))) for part in (lines, system_lines))
        _keep_records(session, job, batches, lines, user)
        tails = points_of(unhurried(user), unhurried(system))
        known = _known(session, job_id, tails)
        before = len(known)
        left_out = _admit(session, job, tails, known, limits)
        open_blocks = _open_blocks(session, known)
        blocks: list[_NewBlock] = []
        changed: dict[int, Stats] = {}
        for key, tail in unhurried(tails.items()):
            if series := known.get(key):
                stats = series.stats if series.stats.points else None
                points = completed(tail, stats)
                blocks += _blocks(series, open_blocks.get(series.id), points)
                changed[series.id] = Stats.extended(stats, points)
        if blocks:
            connection = session.connection()
            connection.exec_driver_sql(_PUT_BLOCKS, (job.project_id, *map(list, zip(*blocks, strict=True))))
            stats_of = [tuple(vars(stats).values()) for stats in changed.values()]
            connection.exec_driver_sql(_PUT_STATS, (list(changed), *map(list, zip(*stats_of, strict=True))))
        # Batches are numbered in the order of their commits: those that have come meanwhile are behind the last.
        folded = delete(MetricBatch).where(MetricBatch.job_id == job_id, MetricBatch.n <= batches[-1].n)
        gone = session.execute(folded.returning(MetricBatch.n), execution_options={"synchronize_session": False}).all()
        if len(gone) < len(batches):  # an API process of an earlier release, without this lock, has folded them
            session.rollback()
            return
        for batch in batches:
            session.expunge(batch)
        session.flush()
        locked = of_job.with_for_update().execution_options(populate_existing=True)
        cursor = session.scalars(locked).one()
        cursor.waiting -= sum(len(record.values) for record in (*user, *system))  # as they were counted
        cursor.series += len(known) - before
        if left_out:
            note_drops(session, job, cursor, batches[-1].attempt, ["series"], limits)


def _lock(session: Session, job_id: str, wait: bool) -> bool:
    """Whether this transaction is the one that folds the job's metrics."""
    try_ = "" if wait else "try_"
    lock = text(f"select pg_{try_}advisory_xact_lock(hashtextextended(:name, 0))")
    return session.scalar(lock, {"name": f"weft metrics of {job_id}"}) is not False


def _keep_records(
    session: Session, job: Job, batches: Sequence[MetricBatch], lines: Sequence[bytes], user: Sequence[Record]
) -> None:
    if lines:
        session.add(
            MetricRecords(
                job_id=job.id,
                project_id=job.project_id,
                first_record=next(batch.first_record for batch in batches if batch.records),
                records=len(lines),
                last_time=max(record.t for record in user),
                body=packed(lines),
            )
        )


def _known(session: Session, job_id: str, tails: Mapping[Key, Pending]) -> dict[Key, _Known]:
    ranks = sorted({key.rank for key in tails})
    query = select(*MetricSeries.__table__.columns).where(
        MetricSeries.job_id == job_id,
        MetricSeries.attempt.in_({key.attempt for key in tails}),
        MetricSeries.rank == any_(literal(ranks, ARRAY(Integer))),
    )
    return {
        key: _Known(row.id, Stats.of_row(row))
        for row in session.execute(query)
        if (key := Key(row.attempt, row.rank, row.kind, row.group, row.name)) in tails
    }


def _admit(
    session: Session, job: Job, tails: Mapping[Key, Pending], known: dict[Key, _Known], limits: LimitSettings
) -> bool:
    """Insert the series that are new, as far as there is room; without any point yet. Returns whether some were left
    out."""
    new = [key for key in tails if key not in known]
    if not new:
        return False
    most = {"user": limits.metric_series_per_job, "system": 10 * limits.metric_series_per_job}
    count = select(MetricSeries.kind, func.count()).where(MetricSeries.job_id == job.id)
    have = dict(session.execute(count.group_by(MetricSeries.kind)).all())
    admitted: list[Key] = []
    for key in new:
        have[key.kind] = have.get(key.kind, 0) + 1
        if have[key.kind] <= most[key.kind]:
            admitted.append(key)
    if admitted:
        columns = dict(zip(_NEW_SERIES, map(list, zip(*admitted, strict=True)), strict=True))
        made = session.execute(_PUT_SERIES, {"job": job.id, "project": job.project_id, **columns})
        known.update({Key(*row[1:]): _Known(row.id, _NOTHING) for row in made})
    return len(admitted) < len(new)


def _open_blocks(session: Session, known: Mapping[Key, _Known]) -> dict[int, Points]:
    """The last blocks that are not full, by series."""
    growing = [entry.id for entry in known.values() if entry.stats.points % BLOCK]
    if not growing:
        return {}
    query = (
        select(MetricBlock.series_id, MetricBlock.body)
        .join(MetricSeries, MetricSeries.id == MetricBlock.series_id)
        .where(
            MetricSeries.id == any_(literal(growing, ARRAY(BigInteger))), MetricBlock.n == MetricSeries.points // BLOCK
        )
    )
    return {series: Points.unpacked(body) for series, body in session.execute(query)}


def _blocks(series: _Known, opened: Points | None, points: Points) -> list[_NewBlock]:
    """The blocks that hold ``points``, the open one filled up first."""
    whole = points if opened is None else Points.joined([opened, points])
    first = series.stats.points // BLOCK
    made = []
    for number, start in enumerate(range(0, len(whole), BLOCK), first):
        part = whole[start : start + BLOCK]
        made.append(
            _NewBlock(
                series.id,
                number,
                len(part),
                int(part.steps.min()),
                int(part.steps.max()),
                int(part.times.min()),
                int(part.times.max()),
                rises(part.steps),
                rises(part.times),
                summary(part),
                part.packed(),
            )
        )
    return made
