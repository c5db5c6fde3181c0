"""Folding: batches that waited become chunks of records and blocks of series. Runs with the job's cursor locked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from sqlalchemy import ARRAY, BigInteger, Table, any_, bindparam, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_api.metrics.points import BLOCK, Points, rises, summary
from weft_api.metrics.records import Key, Pending, packed, parsed, unpacked
from weft_api.metrics.series import Stats, completed, waiting
from weft_core.store.models import MetricBatch, MetricBlock, MetricCursor, MetricRecords, MetricSeries

_SERIES, _BLOCKS = cast(Table, MetricSeries.__table__), cast(Table, MetricBlock.__table__)
_LEAST = 2048
"""Points that wait before a fold: reading them costs a few milliseconds."""
_PER_SERIES = 8
"""As many for each series, too: a fold writes a block of each."""


@dataclass(frozen=True)
class _Known:
    id: int
    stats: Stats


def is_due(cursor: MetricCursor) -> bool:
    return cursor.waiting >= max(_LEAST, _PER_SERIES * cursor.series)


def fold(session: Session, cursor: MetricCursor, most: Mapping[str, int]) -> set[str]:
    """Fold all that waits.

    Args:
        session: the transaction that has locked ``cursor``.
        cursor: the job's.
        most: series that a job may have of each kind.

    Returns:
        The kinds of which new series were left out, as there are too many.
    """
    query = select(MetricBatch).where(MetricBatch.job_id == cursor.job_id).order_by(MetricBatch.n)
    batches = list(session.scalars(query))
    _keep_records(session, cursor, batches)
    tails = waiting(batches)
    known = _known(session, cursor, tails)
    left_out = _admit(session, cursor, tails, known, most)
    open_blocks = _open_blocks(session, known)
    blocks: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for key, tail in tails.items():
        if series := known.get(key):
            before = series.stats if series.stats.points else None
            points = completed(tail, before)
            blocks += _blocks(cursor.project_id, series, open_blocks.get(series.id), points)
            changed.append({"series": series.id, **asdict(Stats.extended(before, points))})
    if blocks:
        put = insert(_BLOCKS)
        fields = {name: put.excluded[name] for name in blocks[0] if name not in ("series_id", "n", "project_id")}
        session.execute(put.on_conflict_do_update(index_elements=["series_id", "n"], set_=fields), blocks)
        _write_stats(session, changed)
    session.execute(delete(MetricBatch).where(MetricBatch.job_id == cursor.job_id))
    for batch in batches:
        session.expunge(batch)
    cursor.waiting = 0
    return left_out


def _keep_records(session: Session, cursor: MetricCursor, batches: list[MetricBatch]) -> None:
    with_records = [batch for batch in batches if batch.records]
    lines = [line for batch in with_records for line in unpacked(batch.body)[: batch.records]]
    if lines:
        session.add(
            MetricRecords(
                job_id=cursor.job_id,
                project_id=cursor.project_id,
                first_record=with_records[0].first_record,
                records=len(lines),
                last_time=max(parsed(line).t for line in lines),
                body=packed(lines),
            )
        )


def _known(session: Session, cursor: MetricCursor, tails: Mapping[Key, Pending]) -> dict[Key, _Known]:
    query = select(*MetricSeries.__table__.columns).where(
        MetricSeries.job_id == cursor.job_id,
        MetricSeries.attempt.in_({key.attempt for key in tails}),
        MetricSeries.rank.in_({key.rank for key in tails}),
    )
    return {
        Key(row.attempt, row.rank, row.kind, row.group, row.name): _Known(row.id, Stats.of_row(row))
        for row in session.execute(query)
    }


def _admit(
    session: Session,
    cursor: MetricCursor,
    tails: Mapping[Key, Pending],
    known: dict[Key, _Known],
    most: Mapping[str, int],
) -> set[str]:
    """Insert the series that are new, as far as there is room; without any point yet."""
    new = [key for key in tails if key not in known]
    if not new:
        return set()
    count = select(MetricSeries.kind, func.count()).where(MetricSeries.job_id == cursor.job_id)
    have = dict(session.execute(count.group_by(MetricSeries.kind)).all())
    admitted: list[Key] = []
    left_out: set[str] = set()
    for key in new:
        have[key.kind] = have.get(key.kind, 0) + 1
        if have[key.kind] <= most[key.kind]:
            admitted.append(key)
        else:
            left_out.add(key.kind)
    nothing = Stats(0, 0, 0, 0, 0, 0.0, None, None)
    rows = [
        {"job_id": cursor.job_id, "project_id": cursor.project_id, **key._asdict(), **asdict(nothing)}
        for key in admitted
    ]
    if rows:
        made = session.execute(insert(_SERIES).returning(*(_SERIES.c[name] for name in ("id", *Key._fields))), rows)
        known.update({Key(*row[1:]): _Known(row.id, nothing) for row in made})
        cursor.series += len(rows)
    return left_out


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


def _blocks(project_id: str, series: _Known, opened: Points | None, points: Points) -> list[dict[str, Any]]:
    """The blocks that hold ``points``, the open one filled up first."""
    whole = points if opened is None else Points.joined([opened, points])
    first = series.stats.points // BLOCK
    made = []
    for number, start in enumerate(range(0, len(whole), BLOCK), first):
        part = whole[start : start + BLOCK]
        made.append(
            {
                "series_id": series.id,
                "n": number,
                "project_id": project_id,
                "points": len(part),
                "first_step": int(part.steps.min()),
                "last_step": int(part.steps.max()),
                "first_time": int(part.times.min()),
                "last_time": int(part.times.max()),
                "steps_rise": rises(part.steps),
                "times_rise": rises(part.times),
                "summary": summary(part),
                "body": part.packed(),
            }
        )
    return made


def _write_stats(session: Session, changed: list[dict[str, Any]]) -> None:
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in Stats.__dataclass_fields__}
    rows = [
        {f"new_{name}" if name != "series" else name: value for name, value in change.items()} for change in changed
    ]
    session.execute(update(_SERIES).where(_SERIES.c.id == bindparam("series")).values(values), rows)
