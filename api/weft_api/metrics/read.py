"""Reading a job's metrics: which series there are, their points for a chart's width, records as they came."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import case, false, func, not_, true

from weft_api.metrics.limits import told
from weft_api.metrics.points import Points, Rows, plain
from weft_api.metrics.records import Record, parsed, unpacked
from weft_api.metrics.schemas import Buckets, QueryAnswer, RecordPage, RecordView, SeriesList, SeriesView
from weft_api.metrics.series import Series, SeriesFilter, load
from weft_core.settings import LimitSettings
from weft_core.store.models import MetricBatch, MetricBlock, MetricCursor, MetricRecords
from weft_core.store.scope import Scope

_MOST_SERIES = 200
"""The most series in an answer."""
_EXACT = 50_000
"""Points that a query reads one by one; of more, the summaries of blocks are read instead (entries of 32 points)."""
_MOST_POINTS = 500_000
"""Points without an order are read one by one up to this number; for more points, the summaries are good enough."""


def list_series(scope: Scope, job_id: str, wanted: SeriesFilter, limits: LimitSettings) -> SeriesList:
    cursor = scope.find(MetricCursor, MetricCursor.job_id == job_id)
    return SeriesList(
        series=[_view(series) for series in load(scope, job_id, wanted)],
        notes=[told(reason, limits) for reason in (cursor.dropped if cursor else [])],
    )


def _view(series: Series) -> SeriesView:
    key, stats = series.key, series.stats
    return SeriesView(
        name=key.shown,
        group=key.group,
        kind=key.kind,
        learner=key.rank + 1,
        attempt=key.attempt,
        points=stats.points,
        first_step=stats.first_step,
        last_step=stats.last_step,
        first_time=stats.first_time,
        last_time=stats.last_time,
        last=stats.last if math.isfinite(stats.last) else None,
        min=stats.min,
        max=stats.max,
    )


@dataclass(frozen=True)
class Range:
    """The range of a chart: ``axis`` is ``step`` or ``time`` (ms since the epoch), and both ends are included."""

    axis: Literal["step", "time"]
    start: float | None
    stop: float | None
    width: int


def query(scope: Scope, job_id: str, wanted: SeriesFilter, shown: Range) -> QueryAnswer:
    """Each series in at most ``shown.width`` buckets; all series have the same ones."""
    found = load(scope, job_id, wanted)
    chosen = found[:_MOST_SERIES]
    rows = [points.within(shown.start, shown.stop) for points in _rows(scope, chosen, shown)]
    start, stop = _ends(rows, shown)
    return QueryAnswer(
        x=shown.axis,
        series=[
            _buckets(series, points.buckets(shown.width, start, stop))
            for series, points in zip(chosen, rows, strict=True)
        ],
        left_out=len(found) - len(chosen),
    )


def _ends(rows: Sequence[Rows], shown: Range) -> tuple[float, float]:
    present = [points.x for points in rows if len(points.x)]
    start = shown.start if shown.start is not None else float(min((x.min() for x in present), default=0))
    stop = shown.stop if shown.stop is not None else float(max((x.max() for x in present), default=0))
    return start, max(stop, start + 1)


def _buckets(series: Series, of: Rows) -> Buckets:
    key = series.key
    return Buckets(
        name=key.shown,
        group=key.group,
        kind=key.kind,
        learner=key.rank + 1,
        attempt=key.attempt,
        points=series.stats.points,
        x=of.x.tolist(),
        min=plain(of.low),
        max=plain(of.high),
        last=plain(of.last),
        count=of.count.tolist(),
    )


def _rows(scope: Scope, chosen: Sequence[Series], shown: Range) -> list[Rows]:
    """The content of the buckets: points, or entries of summaries where there are too many points."""
    parts: dict[int | None, list[Rows]] = defaultdict(list)
    steps = shown.axis == "step"
    start, stop = (
        (MetricBlock.first_step, MetricBlock.last_step) if steps else (MetricBlock.first_time, MetricBlock.last_time)
    )
    blocks = scope.select(
        MetricBlock, MetricBlock.series_id.in_([series.id for series in chosen if series.id is not None])
    )
    # A summary can't tell exactly which of its points are in the range, and which come before others.
    vague = not_(MetricBlock.steps_rise if steps else MetricBlock.times_rise)
    if shown.start is not None:
        blocks = blocks.where(stop >= shown.start)
        vague |= start < shown.start
    if shown.stop is not None:
        blocks = blocks.where(start <= shown.stop)
        vague |= stop > shown.stop
    points = func.coalesce(func.sum(MetricBlock.points), 0)
    count = blocks.with_only_columns(points, func.coalesce(func.sum(MetricBlock.points).filter(vague), 0))
    everything, vague_ones = scope.session.execute(count).one()
    exact = true() if everything <= _EXACT else vague if vague_ones <= _MOST_POINTS else false()
    body, entries = case((exact, MetricBlock.body)), case((not_(exact), MetricBlock.summary))
    columns = blocks.with_only_columns(MetricBlock.series_id, body, entries)
    for series_id, read, summed in scope.session.execute(columns.order_by(MetricBlock.series_id, MetricBlock.n)):
        if read is not None:
            parts[series_id].append(Rows.of_points(Points.unpacked(read), shown.axis))
        else:
            parts[series_id].append(Rows.of_summary(summed, shown.axis))
    return [
        Rows.joined([*(parts[series.id] if series.id is not None else []), Rows.of_points(series.tail, shown.axis)])
        for series in chosen
    ]


def read_records(scope: Scope, job_id: str, start: int, limit: int, since: int | None = None) -> RecordPage:
    """Up to ``limit`` of the user's records as they came, from number ``start`` on (the first is 1), or from the first
    one behind it that is not older than ``since`` (ms since the epoch)."""
    cursor = scope.find(MetricCursor, MetricCursor.job_id == job_id)
    total = cursor.next_record - 1 if cursor else 0
    if since is not None:
        start = max(start, _first_since(scope, job_id, since) or total + 1)
    stop = min(start + limit, total + 1)  # first one that is not wanted
    found: list[RecordView] = []
    folded = scope.select(MetricRecords, MetricRecords.job_id == job_id)
    folded = folded.where(MetricRecords.first_record + MetricRecords.records > start, MetricRecords.first_record < stop)
    for chunk in scope.all(folded.order_by(MetricRecords.first_record)):
        found += _part(chunk.first_record, unpacked(chunk.body), start, stop)
    batches = scope.select(MetricBatch, MetricBatch.job_id == job_id, MetricBatch.records > 0)
    batches = batches.where(MetricBatch.first_record + MetricBatch.records > start, MetricBatch.first_record < stop)
    for batch in scope.all(batches.order_by(MetricBatch.n)):
        found += _part(batch.first_record, unpacked(batch.body)[: batch.records], start, stop)
    return RecordPage(records=found, total=total)


def _first_since(scope: Scope, job_id: str, since: int) -> int | None:
    """The number of the first record that is not older; none: all are."""
    folded = scope.select(MetricRecords, MetricRecords.job_id == job_id, MetricRecords.last_time >= since)
    chunks: Sequence[MetricRecords | MetricBatch] = scope.all(folded.order_by(MetricRecords.first_record).limit(1))
    if not chunks:
        waiting = scope.select(MetricBatch, MetricBatch.job_id == job_id, MetricBatch.records > 0)
        chunks = scope.all(waiting.order_by(MetricBatch.n))
    for chunk in chunks:
        for number, line in enumerate(unpacked(chunk.body)[: chunk.records], chunk.first_record):
            if parsed(line).t >= since:
                return number
    return None


def _part(first: int, lines: Sequence[bytes], start: int, stop: int) -> list[RecordView]:
    return [_record_view(number, parsed(line)) for number, line in enumerate(lines, first) if start <= number < stop]


def _record_view(number: int, record: Record) -> RecordView:
    return RecordView(
        rindex=number,
        t=record.t,
        attempt=record.attempt,
        learner=record.rank + 1,
        group=record.group,
        etimes=record.etimes,
        values=record.values,
        types=record.types,
    )
