"""Values of MLflow's requests: checked as MLflow does, with the limits of its ``mlflow/utils/validation.py``."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from weft_api.http.problems import INVALID_REQUEST, Problem

MOST_METRICS, MOST_PARAMS, MOST_TAGS, MOST_ENTITIES = 1000, 100, 100, 1000
"""In one log-batch."""
LONGEST_KEY, LONGEST_PARAM, LONGEST_TAG = 250, 6000, 8000
LONGEST_EXPERIMENT, LONGEST_EXPERIMENT_TAG = 500, 20_000
LONGEST_ID = 256
MOST_KEPT = 2000
"""Parameters, or tags, of one run. MLflow has no such limit."""
_NAME = re.compile(r"[/\w.\- :]*")
_DEPTH = 32
_LARGEST = 2**63 - 1
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SHOWN = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class Metric(NamedTuple):
    key: str
    value: float
    time: int
    step: int
    model_id: str | None = None
    dataset: tuple[str, str] | None = None


def refused(message: str) -> Problem:
    return Problem(INVALID_REQUEST, message)


def storable(value: Any, depth: int = 0) -> Any:
    """``value`` with all texts in it as Postgres and JSON can hold them. Raises Problem if it is nested too deeply."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if depth > _DEPTH:
        raise refused("the body is nested too deeply")
    if isinstance(value, list):
        return [storable(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {storable(key): storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


class Arguments:
    """The body or the query of a request. A value of the wrong type raises Problem."""

    def __init__(self, data: Any) -> None:
        if not isinstance(data, dict):
            raise refused("the body must be a JSON object")
        self._data: Mapping[str, Any] = data

    def find(self, name: str) -> Any:
        return self._data.get(name)

    def text(self, name: str, most: int = LONGEST_ID) -> str:
        found = self.text_or_none(name, most)
        if not found:
            raise refused(f"Missing value for required parameter '{name}'.")
        return found

    def text_or_none(self, name: str, most: int = LONGEST_ID) -> str | None:
        found = self._data.get(name)
        if found is None:
            return None
        if not isinstance(found, str):
            raise _wrong(name, found, "expected a string")
        if len(found) > most:
            raise _wrong(name, found[:40] + "…", f"exceeds the maximum length of {most} characters")
        return found

    def integer(self, name: str, default: int | None = None, least: int = 0, most: int = _LARGEST) -> int:
        found = self._data.get(name)
        if found is None and default is not None:
            return default
        number = _integer(found)
        if number is None or not least <= number <= most:
            raise _wrong(name, found, f"expected a whole number from {least} to {most}")
        return number

    def items(self, name: str, most: int) -> Iterator[Arguments]:
        """The objects of a list."""
        return (Arguments(item) for item in self.values(name, most))

    def values(self, name: str, most: int) -> list[Any]:
        found = self._data.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise _wrong(name, found, "expected a list")
        if len(found) > most:
            raise refused(
                f"A batch logging request can contain at most {most} {name}. Got {len(found)} {name}. Please split up "
                f"{name} across multiple requests and try again."
            )
        return found

    def texts(self, name: str, most: int) -> list[str]:
        found = self.values(name, most)
        for value in found:
            if not isinstance(value, str):
                raise _wrong(name, value, "expected strings")
        return found

    def run_id(self) -> str:
        """``run_uuid`` is its name of before MLflow 1.0, which clients still send beside it."""
        return self.text_or_none("run_id") or self.text("run_uuid")


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        # JSON of protocol buffers has 64-bit numbers as texts.
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if not isinstance(value, float) or number == value else None


def _wrong(name: str, found: Any, why: str) -> Problem:
    return refused(f"Invalid value {repr(found)[:100]} for parameter '{name}' supplied: {why}.")


def checked_name(name: str | None, where: str) -> str:
    """The name of a metric, a parameter or a tag. Raises Problem."""
    if not name:
        raise refused(f"Missing value for required parameter '{where}'. A key name must be provided.")
    if len(name) > LONGEST_KEY:
        raise refused(f"'{where}' exceeds the maximum length of {LONGEST_KEY} characters: {name[:40]}…")
    if not _NAME.fullmatch(name):
        raise _wrong(
            where,
            name,
            "Names may only contain alphanumerics, underscores (_), dashes (-), periods (.), spaces ( ), colons (:) "
            "and slashes (/)",
        )
    normal = posixpath.normpath(name)
    if normal != name or normal == "." or normal.startswith(("..", "/")):
        raise _wrong(
            where, name, f"Names may be treated as files in certain cases, and must not resolve to others: {normal}"
        )
    return name


def metric_of(of: Arguments) -> Metric:
    """Raises Problem."""
    key = checked_name(of.text_or_none("key", 100_000), "name")
    told = of.find("value")
    try:
        if told is None or isinstance(told, bool):
            raise ValueError
        value = float(told)
    except (TypeError, ValueError, OverflowError):
        raise _wrong("value", told, "Please specify value as a valid double (64-bit floating point)") from None
    time = of.integer("timestamp")
    step = of.integer("step", 0, least=-_LARGEST)
    dataset = (of.text_or_none("dataset_name", 500), of.text_or_none("dataset_digest", 36))
    model_id = of.text_or_none("model_id")
    return Metric(key, value, time, step, model_id or None, dataset if dataset[0] and dataset[1] else None)  # type: ignore[arg-type]


def param_of(of: Arguments) -> tuple[str, str]:
    """A value that is too long is cut, as MLflow does. Raises Problem."""
    key = checked_name(of.text_or_none("key", 100_000), "key")
    return key, (of.text_or_none("value", 2_000_000) or "")[:LONGEST_PARAM]


def tag_of(of: Arguments, longest: int = LONGEST_TAG) -> tuple[str, str]:
    """Raises Problem."""
    key = checked_name(of.text_or_none("key", 100_000), "key")
    return key, (of.text_or_none("value", 2_000_000) or "")[:longest]


def kept_number(value: float) -> float | str:
    """For JSON in the database, which has no NaN."""
    return value if math.isfinite(value) else str(value)


def read_number(kept: Any) -> float:
    return _NOT_FINITE[kept] if isinstance(kept, str) else float(kept)


def shown_number(value: float) -> float | str:
    """As protocol buffers write it in JSON."""
    return value if math.isfinite(value) else _SHOWN[str(value)]


def pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    """As MLflow's answers have tags and parameters."""
    return [{"key": key, "value": value} for key, value in sorted(values.items())]
