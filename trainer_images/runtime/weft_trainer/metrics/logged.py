"""Reads the file that training code writes with ``log_metrics``."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft_trainer.growing import Found, LineFile
from weft_trainer.metrics.records import Record, Value
from weft_trainer.metrics.shipper import MetricShipper

_READ = 2 << 20
"""Bytes of one read: some 20,000 lines, half a second of one core."""
_KEEP = 64 << 20
"""Bytes that may wait while there is room for their points; while there is none, a read takes or passes over all."""
_LAST = 100
"""How many of the last lines are read even if the others are left out: the last values are among them."""
_ROTATE = 64 << 20


class LoggedMetrics:
    """Follows the file, and puts it aside from time to time so that it does not fill the disk."""

    def __init__(self, path: Path, shipper: MetricShipper) -> None:
        self._path = path
        self._shipper = shipper
        self._file = LineFile(path)
        self._old: LineFile | None = None
        """The file that was put aside, until it has been read."""

    def read(self, found: Sequence[Found]) -> bool:
        room = self._shipper.room
        file = self._old or self._file
        lines, passed = file.read(_READ, keep=_KEEP if room > _LAST else _READ)
        chosen = self._choose(lines, room)
        records = [record for record in map(parse, chosen) if record is not None]
        left_out = len(lines) - len(chosen)
        if passed and lines:
            left_out += passed * len(lines) // sum(len(line) + 1 for line in lines)
        values = sum(len(record.values) for record in records)
        self._shipper.write(records, left_out=left_out * values // max(1, len(records)))
        return self._rotate(lines) or file.waiting > 0

    def _choose(self, lines: list[bytes], room: int) -> list[bytes]:
        # At random: every second line might be of the same metric.
        most = room + 2 * _LAST
        if len(lines) <= most:
            return lines
        early = sorted(random.sample(range(len(lines) - _LAST), most - _LAST))
        return [lines[number] for number in early] + lines[-_LAST:]

    def _rotate(self, lines: list[bytes]) -> bool:
        """Whether another file than the one just read has to be read next."""
        if self._old is not None:
            # Not before a read that found nothing: a process may have opened the file just before it was put aside.
            if not lines and not self._old.waiting:
                with suppress(OSError):
                    self._old.path.unlink()
                self._old = None
            return True
        if self._file.offset > _ROTATE:
            aside = self._path.with_suffix(".old")
            with suppress(OSError):
                os.rename(self._path, aside)
                self._old, self._file = self._file, LineFile(self._path)
                self._old.path = aside
                return True
        return False


def parse(line: bytes) -> Record | None:
    """None: the line does not come from ``log_metrics``, or it is torn."""
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
    """Milliseconds since the epoch. Raises: ValueError, if no clock can show this value."""
    time = int(value)
    if not 0 <= time < 10**14:
        raise ValueError("no time")
    return time
