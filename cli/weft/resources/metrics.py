"""The metrics of a job: its series, points for a chart, and all points as a file."""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import httpx

from weft.models import Json
from weft.transport.http import Transport, segment
from weft.transport.transfer import Progress, download, silent

Axis = Literal["step", "time"]


@dataclass(frozen=True)
class MetricValues:
    """The newest and best values of a metric; None: no value is finite. ``step`` is the step of the newest value."""

    last: float | None
    min: float | None
    max: float | None
    step: int | None = None

    @classmethod
    def from_json(cls, data: Json) -> MetricValues:
        return cls(*(data.get(name) for name in ("last", "min", "max", "step")))


@dataclass(frozen=True)
class Series:
    """The values of one metric from one learner in one attempt.

    ``name`` includes the group (``train/loss``), ``kind`` is ``user`` or ``system``, ``learner`` and ``attempt`` count
    from 1.
    """

    name: str
    group: str
    kind: str
    learner: int
    attempt: int
    points: int
    first_step: int
    last_step: int
    first_time: datetime
    last_time: datetime
    last: float | None
    """None: the value is not finite."""
    min: float | None
    max: float | None
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, data: Json) -> Series:
        return cls(
            **_whose(data),
            points=int(data["points"]),
            first_step=int(data["first_step"]),
            last_step=int(data["last_step"]),
            first_time=_moment(data["first_time"]),
            last_time=_moment(data["last_time"]),
            last=data.get("last"),
            min=data.get("min"),
            max=data.get("max"),
            raw=data,
        )


@dataclass(frozen=True)
class Curve:
    """A series in buckets, in ascending order of x (a step, or ms since the epoch).

    For each bucket: the smallest, the largest and the last value (None: no value is finite), and the number of points.
    """

    name: str
    group: str
    kind: str
    learner: int
    attempt: int
    x: Sequence[int]
    min: Sequence[float | None]
    max: Sequence[float | None]
    last: Sequence[float | None]
    count: Sequence[int]
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, data: Json) -> Curve:
        return cls(**_whose(data), **{name: data[name] for name in ("x", "min", "max", "last", "count")}, raw=data)


@dataclass(frozen=True)
class Point:
    """One reported value; ``value`` may be NaN or infinite."""

    name: str
    group: str
    kind: str
    learner: int
    attempt: int
    step: int
    time: datetime
    value: float


class Metrics:
    """The metrics that jobs report.

    The arguments ``names`` (``train/loss``), ``kind`` (``user``, ``system``), ``learner`` and ``attempt`` (both from 1)
    select series; without them, all series are selected. Every method may raise a WeftError.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, job_id: str, names: Sequence[str] = (), **chosen: Any) -> Sequence[Series]:
        """The series, with their newest and best values."""
        answer = self._transport.json("GET", _path(job_id), params=_query(names, chosen))
        return [Series.from_json(series) for series in answer.get("series") or ()]

    def notes(self, job_id: str) -> Sequence[str]:
        """Notes about metrics that the server has dropped, with the reasons."""
        return [str(note) for note in self._transport.json("GET", _path(job_id)).get("notes") or ()]

    def curves(
        self,
        job_id: str,
        names: Sequence[str] = (),
        *,
        axis: Axis = "step",
        start: float | None = None,
        stop: float | None = None,
        width: int = 600,
        **chosen: Any,
    ) -> Sequence[Curve]:
        """Series in at most ``width`` buckets from ``start`` to ``stop`` (both inclusive, in units of the axis)."""
        params = _query(names, chosen) | {"x": axis, "from": start, "to": stop, "width": width}
        answer = self._transport.json("GET", _path(job_id, "/query"), params=params)
        return [Curve.from_json(curve) for curve in answer.get("series") or ()]

    def export(
        self,
        job_id: str,
        target: str | Path,
        form: Literal["csv", "parquet"] = "csv",
        names: Sequence[str] = (),
        progress: Progress = silent,
        **chosen: Any,
    ) -> Path:
        """Download all points as a file.

        Raises:
            TransferError: the download failed.
        """
        params = _query(names, chosen) | {"format": form}

        def open_at(headers: Mapping[str, str]) -> AbstractContextManager[httpx.Response]:
            return self._transport.stream("GET", _path(job_id, "/export"), params=params, headers=headers)

        download(open_at, Path(target), progress)
        return Path(target)

    def points(self, job_id: str, names: Sequence[str] = (), **chosen: Any) -> Iterator[Point]:
        """All points, series by series, in the order in which they arrived."""
        with tempfile.TemporaryDirectory(prefix="weft-metrics-") as scratch:
            path = self.export(job_id, Path(scratch) / "points.csv", "csv", names, **chosen)
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    yield Point(
                        **_whose(row),
                        step=int(row["step"]),
                        time=datetime.fromisoformat(row["time"]),
                        value=float(row["value"]),
                    )


def _path(job_id: str, rest: str = "") -> str:
    return f"/jobs/{segment(job_id)}/metrics{rest}"


def _query(names: Sequence[str], chosen: Mapping[str, Any]) -> dict[str, Any]:
    unknown = chosen.keys() - {"kind", "learner", "attempt"}
    if unknown:
        raise TypeError(f"kind, learner and attempt select series, not {', '.join(sorted(unknown))}")
    return {"name": names, **chosen}


def _whose(data: Json) -> dict[str, Any]:
    texts = {name: sys.intern(str(data[name])) for name in ("name", "group", "kind")}
    return {**texts, "learner": int(data["learner"]), "attempt": int(data["attempt"])}


def _moment(ms: Any) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
