"""Points of a series as arrays: packed into blocks, summarised, put into buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1024
"""Points in a block: about what one chart's bucket holds of a million, and cheap to write anew while it fills."""
ENTRY = 32
"""Points that one entry of a block's summary stands for."""

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_SUMMARY = np.dtype(
    [("step", "<i8"), ("time", "<i8"), ("min", "<f8"), ("max", "<f8"), ("last", "<f8"), ("count", "<i8")]
)


@dataclass(frozen=True)
class Points:
    """Points in the order in which they came. Times are milliseconds since the epoch."""

    steps: _Ints
    times: _Ints
    values: _Floats

    @classmethod
    def of(cls, steps: Sequence[int], times: Sequence[int], values: Sequence[float]) -> Points:
        return cls(np.array(steps, "<i8"), np.array(times, "<i8"), np.array(values, "<f8"))

    @classmethod
    def joined(cls, parts: Sequence[Points]) -> Points:
        if not parts:
            return cls.of([], [], [])
        return cls(
            np.concatenate([part.steps for part in parts]),
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.values for part in parts]),
        )

    @classmethod
    def unpacked(cls, body: bytes) -> Points:
        third = len(body) // 3
        return cls(
            np.frombuffer(body[:third], "<i8"),
            np.frombuffer(body[third : 2 * third], "<i8"),
            np.frombuffer(body[2 * third :], "<f8"),
        )

    def packed(self) -> bytes:
        return self.steps.tobytes() + self.times.tobytes() + self.values.tobytes()

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice) -> Points:
        return Points(self.steps[part], self.times[part], self.values[part])

    def finite(self) -> _Floats:
        """The values, with NaN for all that is not finite."""
        return np.where(np.isfinite(self.values), self.values, np.nan)


@dataclass(frozen=True)
class Rows:
    """Points, or groups of neighbouring points, on an axis: of each the last one's x and value, the smallest and the
    largest finite value (NaN: none), and how many there are."""

    x: _Ints
    low: _Floats
    high: _Floats
    last: _Floats
    count: _Ints

    @classmethod
    def of_points(cls, points: Points, axis: str) -> Rows:
        finite = points.finite()
        x = points.steps if axis == "step" else points.times
        return cls(x, finite, finite, finite, np.ones(len(points), np.int64))

    @classmethod
    def of_summary(cls, body: bytes, axis: str) -> Rows:
        read = np.frombuffer(body, _SUMMARY)
        return cls(read[axis], read["min"], read["max"], read["last"], read["count"])

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        if not parts:
            return cls.of_points(Points.of([], [], []), "step")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))

    def where(self, chosen: NDArray[Any]) -> Rows:
        return Rows(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def within(self, start: float | None, stop: float | None) -> Rows:
        """The rows with ``start`` ≤ x ≤ ``stop``."""
        chosen = np.ones(len(self.x), np.bool_)
        if start is not None:
            chosen &= self.x >= start
        if stop is not None:
            chosen &= self.x <= stop
        return self.where(chosen)

    def buckets(self, width: int, start: float, stop: float) -> Rows:
        """At most ``width`` groups, by rising x. Points of the same x are one group, in which the newest is the last;
        if these are too many, [start, stop] is cut into ``width`` equal parts."""
        if not len(self.x):
            return self
        ordered = self.where(np.argsort(self.x, kind="stable"))  # stable: of equal x the newest stays last
        grouped = ordered._grouped(ordered.x)
        if len(grouped.x) <= width:
            return grouped
        part = np.minimum((grouped.x - start) * (width / (stop - start)), width - 1).astype(np.int64)
        return grouped._grouped(part)

    def _grouped(self, by: _Ints) -> Rows:
        """Neighbours with the same ``by`` as one."""
        starts = np.flatnonzero(np.diff(by, prepend=by[0] - 1))
        ends = np.append(starts[1:], len(by)) - 1
        return Rows(
            self.x[ends],
            np.fmin.reduceat(self.low, starts),
            np.fmax.reduceat(self.high, starts),
            self.last[ends],
            np.add.reduceat(self.count, starts),
        )


def summary(points: Points) -> bytes:
    """The summary that a block keeps beside its points: an entry for each :data:`ENTRY` points."""
    starts = np.arange(0, len(points), ENTRY)
    ends = np.append(starts[1:], len(points)) - 1
    finite = points.finite()
    made = np.empty(len(starts), _SUMMARY)
    made["step"], made["time"] = points.steps[ends], points.times[ends]
    made["min"], made["max"] = np.fmin.reduceat(finite, starts), np.fmax.reduceat(finite, starts)
    made["last"], made["count"] = finite[ends], ends - starts + 1
    return made.tobytes()


def rises(of: _Ints) -> bool:
    return bool(np.all(of[1:] >= of[:-1]))


def plain(values: _Floats) -> list[float | None]:
    """For JSON, which has no NaN."""
    return [None if value != value else value for value in values.tolist()]
