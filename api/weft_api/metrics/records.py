"""Records as they are kept: hostile content is made harmless, and each is a line of JSON."""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft_api.metrics.schemas import RecordIn
from weft_core.deflate import deflate

_AT_ONCE = 200
"""Lines that are parsed together."""
_LONGEST_NAME = 200
_LONGEST_TEXT = 4096
_MOST_VALUES, _MOST_ETIMES = 2000, 20
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # controls, marks that turn text around, halves of pairs, …
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SYSTEM_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LARGEST_STEP = 2**53


class Key(NamedTuple):
    """Which series."""

    attempt: int
    rank: int
    kind: str
    group: str
    name: str

    @property
    def shown(self) -> str:
        return shown_name(self.group, self.name)


class Record(NamedTuple):
    """A record as it is kept."""

    t: int
    attempt: int
    rank: int
    group: str
    etimes: dict[str, Any]
    values: dict[str, Any]
    types: dict[str, str] = {}  # noqa: RUF012 - a tuple's default, never changed

    def line(self) -> bytes:
        return json.dumps(self if self.types else self[:-1], separators=(",", ":"), allow_nan=False).encode() + b"\n"

    @property
    def step(self) -> int | None:
        """etimes' iteration, if it is a whole number or the text of one."""
        told = self.etimes.get("iteration")
        try:
            step = int(told) if isinstance(told, int | str) or (isinstance(told, float) and told == int(told)) else None
        except (ValueError, OverflowError):
            return None
        return step if step is not None and abs(step) <= _LARGEST_STEP else None

    def numbers(self) -> Iterator[tuple[str, float]]:
        for name, value in self.values.items():
            if isinstance(value, int | float):
                yield name, float(value)
            elif value in _NOT_FINITE:
                yield name, _NOT_FINITE[value]


def shown_name(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name


def cleaned(record: RecordIn, attempt: int, rank: int) -> Record:
    """A record with names and values that can be kept, shown and sorted."""
    etimes = {clean_name(name): value for name, value in _values(record.etimes, _MOST_ETIMES)}
    if record.kind == "system":
        values = {name: value for name, value in _values(record.values, _MOST_VALUES) if _SYSTEM_NAME.fullmatch(name)}
        return Record(record.t, attempt, rank, "system", etimes, values)
    values = {clean_name(name) or "value": value for name, value in _values(record.values, _MOST_VALUES)}
    told = {clean_name(name): kind for name, kind in record.types.items()}
    types: dict[str, str] = {
        name: kind for name, kind in told.items() if isinstance(values.get(name, etimes.get(name)), str)
    }
    return Record(record.t, attempt, rank, clean_name(record.group), etimes, values, types)


def clean_name(name: str) -> str:
    """A name on one line, without control characters. A long name is cut, and stays different from similar names."""
    text = name.encode("utf-8", "replace").decode().strip()
    if not text.isprintable():
        text = "".join("\ufffd" if unicodedata.category(character) in _UNSAFE else character for character in text)
    if len(text) > _LONGEST_NAME:
        text = f"{text[: _LONGEST_NAME - 9]}…{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return text


def _values(told: Mapping[str, Any], most: int) -> Iterator[tuple[str, int | float | str]]:
    for name, value in list(told.items())[:most]:
        if isinstance(value, bool):
            yield name, int(value)
        elif isinstance(value, float) and not math.isfinite(value):
            yield name, "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        elif isinstance(value, int) and abs(value) >= 1 << 1000:  # no float
            yield name, hex(value)[:_LONGEST_TEXT]
        elif isinstance(value, int | float):
            yield name, value
        elif isinstance(value, str):
            yield name, value[:_LONGEST_TEXT]
        elif value is not None:
            yield name, json.dumps(value)[:_LONGEST_TEXT]


def packed(lines: Iterable[bytes]) -> bytes:
    return deflate(b"".join(lines))


def unpacked(body: bytes) -> list[bytes]:
    """The lines."""
    return zlib.decompress(body).splitlines(keepends=True)


def parsed(line: bytes) -> Record:
    return Record(*json.loads(line))


def all_parsed(lines: Sequence[bytes]) -> Iterator[Record]:
    """The records, some at a time: in a third of the time that it takes line by line."""
    for start in range(0, len(lines), _AT_ONCE):
        for values in json.loads(b"[" + b",".join(lines[start : start + _AT_ONCE]) + b"]"):
            yield Record(*values)


@dataclass
class Pending:
    """Points that are not folded yet; a missing step is None."""

    steps: list[int | None]
    times: list[int]
    values: list[float]


def pending(records: Iterable[tuple[str, Record]]) -> dict[Key, Pending]:
    """The points of (kind, record) pairs by series, in order."""
    found: dict[Key, Pending] = {}
    for kind, record in records:
        step = record.step
        for name, value in record.numbers():
            key = Key(record.attempt, record.rank, kind, record.group, name)
            series = found.get(key)
            if series is None:
                series = found[key] = Pending([], [], [])
            series.steps.append(step)
            series.times.append(record.t)
            series.values.append(value)
    return found
