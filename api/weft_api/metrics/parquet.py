"""Points as Parquet. Loaded for an export only, as the library takes 7 MiB of each process that loads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

import numpy as np
from arro3.core import Array, DataType, Field, RecordBatch, RecordBatchReader, Schema
from arro3.io import write_parquet

from weft_api.metrics.points import Points
from weft_api.metrics.series import Series

_TIME = DataType.timestamp("ms", tz="UTC")
_SCHEMA = Schema(
    [
        *(Field(name, DataType.utf8(), nullable=False) for name in ("name", "group", "kind")),
        *(Field(name, DataType.int32(), nullable=False) for name in ("learner", "attempt")),
        Field("step", DataType.int64(), nullable=False),
        Field("time", _TIME, nullable=False),
        Field("value", DataType.float64(), nullable=False),
    ]
)


def write(parts: Iterable[tuple[Series, Points]], file: IO[bytes]) -> None:
    """Write the points of each series, in the columns of the CSV."""
    batches = (_batch(series, points) for series, points in parts if len(points))
    write_parquet(RecordBatchReader.from_batches(_SCHEMA, batches), file, compression="zstd(3)")


def _batch(series: Series, points: Points) -> RecordBatch:
    key, count = series.key, len(points)
    texts = [Array([text] * count, type=DataType.utf8()) for text in (key.shown, key.group, key.kind)]
    whose = [Array.from_numpy(np.full(count, number, np.int32)) for number in (key.rank + 1, key.attempt)]
    steps, times, values = (Array.from_numpy(column.copy()) for column in (points.steps, points.times, points.values))
    return RecordBatch.from_arrays([*texts, *whose, steps, times.cast(_TIME), values], schema=_SCHEMA)
