"""All points of a job's series as one file, exactly as they are."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Literal

import numpy as np
from sqlalchemy import ARRAY, BigInteger, any_, literal

from weft_api.metrics.points import Points
from weft_api.metrics.series import Series
from weft_core.store.models import MetricBlock
from weft_core.store.scope import Scope

Format = Literal["csv", "parquet"]
MEDIA: Mapping[Format, str] = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}

_COLUMNS = ("name", "group", "kind", "learner", "attempt", "step", "time", "value")
_AT_ONCE = 64
"""Blocks."""
_PIECE = 1 << 18

Part = tuple[Series, Points]


def export(scope: Scope, found: Sequence[Series], form: Format) -> tuple[int, Iterator[bytes]]:
    """The file's size and its bytes. It is made on disk first, so that it comes whole or not at all."""
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - _pieces closes it
    try:
        _WRITERS[form](parts(scope, found), file)
        size = file.tell()
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return size, _pieces(file)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece


def parts(scope: Scope, found: Sequence[Series]) -> Iterator[Part]:
    """Every point, series by series, in the order in which they came."""
    folded = {series.id: series for series in found if series.id is not None}
    blocks = scope.select(MetricBlock, MetricBlock.series_id == any_(literal(list(folded), ARRAY(BigInteger))))
    columns = blocks.with_only_columns(MetricBlock.series_id, MetricBlock.body)
    ordered = columns.order_by(MetricBlock.series_id, MetricBlock.n).execution_options(yield_per=_AT_ONCE)
    last: Series | None = None
    for series_id, body in scope.session.execute(ordered):
        if last is not None and last.id != series_id:
            yield last, last.tail
        last = folded[series_id]
        yield last, Points.unpacked(body)
    if last is not None:
        yield last, last.tail
    yield from ((series, series.tail) for series in found if series.id is None)


def _csv(parts: Iterable[Part], file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for series, points in parts:
        key = series.key
        whose = (key.shown, key.group, key.kind, key.rank + 1, key.attempt)
        times = np.datetime_as_string(points.times.astype("datetime64[ms]"), timezone="UTC").tolist()
        rows = zip(points.steps.tolist(), times, points.values.tolist(), strict=True)
        writer.writerows((*whose, step, time, value) for step, time, value in rows)
    text.detach()


def _parquet(parts: Iterable[Part], file: IO[bytes]) -> None:
    from weft_api.metrics.parquet import write

    write(parts, file)


_WRITERS: Mapping[Format, Callable[[Iterable[Part], IO[bytes]], None]] = {"csv": _csv, "parquet": _parquet}
