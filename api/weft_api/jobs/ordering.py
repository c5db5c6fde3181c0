"""The order of a list of jobs, its conditions on metrics, and its cursors."""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple

from fastapi import Query
from sqlalchemy import ColumnElement, exists

from weft_api.http.paging import decode, decode_time_key, encode
from weft_api.http.problems import invalid
from weft_core.store.models import JobMetric
from weft_core.store.scope import Scope

Sort = Annotated[
    str,
    Query(
        max_length=300,
        description="`created_at`, `name`, `state`, `duration` or `metric:NAME`. `duration` is the time from the "
        "first start until the end, or until now. `metric:NAME` means the newest value of a metric, `metric:NAME:min` "
        "its smallest and `metric:NAME:max` its largest value. A leading `-` means descending. Jobs without the "
        "metric, and jobs that have not started, come last. Jobs that are equal come newest first; with an equal "
        "metric or duration, in the order of their ids.",
        examples=["-metric:val/accuracy:max"],
    ),
]
Metrics = Annotated[
    list[str],
    Query(
        alias="metric",
        max_length=20,
        description="Only jobs that meet all of these conditions, such as `NAME<0.3`. The operators are `<`, `>`, "
        "`<=`, `>=` and `=`. `NAME` means the newest value of a metric, `NAME.min` its smallest and `NAME.max` its "
        "largest.",
        examples=[["val/loss<0.3"]],
    ),
]

_STATS = ("last", "min", "max")
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
}
_CONDITION = re.compile(r"(.+?)\s*(<=|>=|<|>|=)\s*([^<>=]+)", re.DOTALL)
_SORTS = "created_at, name, state, duration, metric:NAME, metric:NAME:min, metric:NAME:max, each with - in front or not"
NEWEST = "-created_at"
_LONGEST = 1e9  # seconds of a duration in a cursor


def _metric(text: str, separator: str) -> tuple[str, str]:
    """(name, stat) of ``NAME`` or ``NAME:min``."""
    name, _, stat = text.rpartition(separator)
    return (name, stat) if name and stat in _STATS else (text, "last")


@dataclass(frozen=True)
class MetricCondition:
    """A condition for a metric's newest, smallest or largest value."""

    name: str
    stat: str
    compare: str
    value: float

    @classmethod
    def parsed(cls, text: str) -> MetricCondition:
        """The condition that a text such as ``val/loss<0.3`` means. Raises Problem invalid_request."""
        found = _CONDITION.fullmatch(text)
        try:
            value = float(found[3]) if found else math.nan
        except ValueError:
            value = math.nan
        if found is None or not math.isfinite(value) or "\0" in text:
            raise invalid("query.metric", "not of the form NAME<NUMBER", found=text[:100], accepted="val/loss<0.3")
        name, stat = _metric(found[1].strip(), ".")
        return cls(name, stat, found[2], value)

    def holds(self, scope: Scope, job_id: ColumnElement[str]) -> ColumnElement[bool]:
        its = scope.listed(JobMetric)
        condition: ColumnElement[bool] = _COMPARED[self.compare](its.c[self.stat], self.value)
        return exists().where(its.c.job_id == job_id, its.c.name == self.name, condition)


class Position(NamedTuple):
    """Where a job stands in an order; a cursor is the position of the last job of a page."""

    id: str
    at: datetime | None
    """When it was submitted; None if the order does not depend on it. In an order by duration, of a job that
    has started: the moment until which the durations of running jobs count."""
    value: Any
    """The value that it is sorted by; None if that is ``at`` alone, or if it lacks the value."""


@dataclass(frozen=True)
class Order:
    """An order of jobs. Those that are equal in it come newest first; with a metric or by duration, in the order of
    their ids."""

    text: str
    descending: bool
    field: str
    metric: str = ""

    @classmethod
    def parsed(cls, text: str) -> Order:
        """Raises Problem invalid_request."""
        field = text.removeprefix("-")
        descending = field != text
        if field in ("created_at", "name", "state", "duration"):
            return cls(text, descending, field)
        name, stat = _metric(field.removeprefix("metric:"), ":")
        if not field.startswith("metric:") or not name or "\0" in name:
            raise invalid("query.sort", "no such order", found=text[:100], accepted=_SORTS)
        return cls(text, descending, stat, name)

    def cursor(self, position: Position) -> str:
        """The cursor of the page behind this position."""
        when = position.at.isoformat() if position.at else ""
        if self.field == "created_at":
            return encode(when, position.id)
        value = position.value.total_seconds() if isinstance(position.value, timedelta) else position.value
        return encode(self._tag, json.dumps(value), when, position.id)

    @property
    def partial(self) -> bool:
        """Whether jobs may lack the value, so that they come last."""
        return bool(self.metric) or self.field == "duration"

    def position(self, cursor: str) -> Position:
        """Raises Problem invalid_request for anything but a cursor of this order."""
        if self.field == "created_at":
            when, job_id = decode_time_key(cursor)
            return Position(job_id, when, None)
        tag, seen, text, job_id = decode(cursor, 4)
        try:
            value = json.loads(seen)
            at = datetime.fromisoformat(text) if text else None
        except (ValueError, RecursionError):
            tag, value, at = "", None, None
        kind = str if self.field == "name" else int if self.field == "state" else float | int
        known = isinstance(value, kind) and not isinstance(value, bool)
        if self.field == "duration" and not self.metric:
            good = at is not None and (value is None or (known and 0 <= value <= _LONGEST))
            value = timedelta(seconds=value) if good and value is not None else None
        elif not self.metric:
            good = known and at is not None
        else:
            good = (known and math.isfinite(value)) if at is None else value is None
        if tag != self._tag or not good or (at is not None and at.tzinfo is None):
            raise invalid("query.cursor", "not a cursor of this order", accepted="`next_cursor` of the page before")
        return Position(job_id, at, value)

    @property
    def _tag(self) -> str:
        """Tells the cursors of one order from those of another; short, whatever a metric's name."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]
