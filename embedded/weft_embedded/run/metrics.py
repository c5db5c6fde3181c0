"""The metrics of a run: every point goes to a file, and the newest and best values are kept for its end."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_COLUMNS = ("name", "group", "kind", "learner", "attempt", "step", "time", "value")  # as in the service's exports
_KIND = "user"
_NOT_FINITE = ("nan", "inf", "-inf")  # JSON has no such numbers


@dataclass
class Series:
    """One value of one learner in one attempt, as `weft metrics` shows it."""

    name: str
    group: str
    learner: int
    attempt: int
    first_step: int
    first_time: int
    kind: str = _KIND
    points: int = 0
    last_step: int = -1
    last_time: int = 0
    last: float | None = None
    min: float | None = None
    max: float | None = None

    def add(self, step: int, time: int, value: float) -> None:
        self.points += 1
        self.last_step, self.last_time = step, time
        self.last = value if math.isfinite(value) else None
        if self.last is not None:
            self.min = value if self.min is None else min(self.min, value)
            self.max = value if self.max is None else max(self.max, value)


class MetricsFile:
    """Points are appended as they come, so that they outlive a run that is killed. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._series: dict[tuple[int, int, str], Series] = {}

    @property
    def series(self) -> list[dict[str, Any]]:
        """The series of this run's attempts."""
        return [asdict(self._series[key]) for key in sorted(self._series)]

    def add(self, attempt: int, learner: int, records: list[dict[str, Any]]) -> None:
        """Keep what a learner's agent has sent. Raises OSError."""
        rows = [row for record in records for row in self._rows(attempt, learner, record)]
        if not rows:
            return
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if not file.tell():
                writer.writerow(_COLUMNS)
            writer.writerows(rows)

    def _rows(self, attempt: int, learner: int, record: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        if record.get("kind", _KIND) != _KIND:
            return
        time, told = int(record["t"]), record.get("etimes", {}).get("iteration")
        group = _harmless(str(record.get("group", "")))
        for plain, value in record["values"].items():
            if not isinstance(value, int | float) and value not in _NOT_FINITE:
                continue  # a text is no point
            name = "/".join(part for part in (group, _harmless(plain)) if part)
            series = self._series.get((attempt, learner, name))
            step = _step(told)
            if step is None:
                step = series.last_step + 1 if series else 0
            if series is None:
                series = Series(name, group, learner, attempt, step, time)
                self._series[attempt, learner, name] = series
            series.add(step, time, float(value))
            moment = datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds")
            yield name, group, _KIND, learner, attempt, step, moment.replace("+00:00", "Z"), float(value)


def _step(told: object) -> int | None:
    try:
        step = float(told) if isinstance(told, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return int(step) if step.is_integer() else None


def _harmless(name: str) -> str:
    """The name without control characters of terminals."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
