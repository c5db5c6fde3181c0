"""What training code says with ``log_metrics``: the agent's end of that file."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft_trainer.metrics.growing import Found, LineFile
from weft_trainer.metrics.records import Record, Value
from weft_trainer.metrics.shipper import MetricShipper

_READ = 8 << 20
"""Bytes a look."""
_PARSED = 20_000
"""Lines a look, at most: 0.1 s of one core."""
_LAST = 100
"""Of a flood, so many of the last lines are always read: the last values are among them."""
_ROTATE = 32 << 20


class LoggedMetrics:
    """The file is put aside from time to time, so that it does not fill the disk."""

    def __init__(self, path: Path, shipper: MetricShipper) -> None:
        self._path = path
        self._shipper = shipper
        self._file = LineFile(path)
        self._old: LineFile | None = None

    def look(self, found: Sequence[Found]) -> bool:
        lines: list[bytes] = []
        skipped = 0
        if self._old is not None:
            # Once more, for who had opened it before it was put aside.
            lines += self._old.read(_READ)
            skipped += self._old.skipped
            with suppress(OSError):
                self._old.path.unlink()
            self._old = None
        lines += self._file.read(_READ)
        skipped += self._file.skipped
        if self._file.offset > _ROTATE:
            aside = self._path.with_suffix(".old")
            with suppress(OSError):
                os.rename(self._path, aside)
                self._old, self._file = self._file, LineFile(self._path)
                self._old.path = aside
        self._take(lines, skipped)
        return self._old is not None

    def _take(self, lines: list[bytes], skipped: int) -> None:
        chosen = self._choose(lines)
        records = [record for record in map(parse, chosen) if record is not None]
        passed = len(lines) - len(chosen)
        if skipped and lines:
            passed += skipped * len(lines) // sum(len(line) + 1 for line in lines)
        points = passed * sum(len(one.values) for one in records) // max(1, len(records))
        self._shipper.write(records, left_out=points)

    def _choose(self, lines: list[bytes]) -> list[bytes]:
        # At random: every second line might be of the same metric.
        most = min(_PARSED, self._shipper.room + 2 * _LAST)
        if len(lines) <= most:
            return lines
        early = sorted(random.sample(range(len(lines) - _LAST), most - _LAST))
        return [lines[number] for number in early] + lines[-_LAST:]


def parse(line: bytes) -> Record | None:
    """None: it is none of ``log_metrics``' lines, or a torn one."""
    try:
        data = json.loads(line)
        values = {str(name): value for name, value in data["v"].items() if isinstance(value, (int, float))}
        etimes: dict[str, Value] = {}
        if isinstance(data.get("i"), int):
            etimes["iteration"] = data["i"]
        if isinstance(data.get("e"), (int, float)):
            etimes["epoch"] = data["e"]
        return Record(moment(data["t"]), values, str(data.get("g", "")), etimes) if values else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def moment(value: Any) -> int:
    """Milliseconds since the epoch. Raises: ValueError, when it is none that a clock may show."""
    time = int(value)
    if not 0 <= time < 10**14:
        raise ValueError("no time")
    return time
