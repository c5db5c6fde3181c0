"""The order of a list of jobs, its conditions on metrics, and its pages."""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, tuple_
from sqlalchemy.orm import aliased

from weft_api.http.paging import decode, decode_time_key, encode
from weft_api.http.problems import invalid
from weft_core.lifecycle.states import JobState
from weft_core.store.models import Job, JobMetric

Sort = Annotated[
    str,
    Query(
        max_length=300,
        description="`created_at`, `name`, `state` or `metric:NAME`. `metric:NAME` means the newest value of a metric, "
        "`metric:NAME:min` its smallest and `metric:NAME:max` its largest value. A leading `-` means descending. Jobs "
        "without the metric come last.",
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
_STATES = {state.value: place for place, state in enumerate(JobState)}
_SORTS = "created_at, name, state, metric:NAME, metric:NAME:min, metric:NAME:max, each with - in front or not"
NEWEST = "-created_at"


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

    def holds(self) -> ColumnElement[bool]:
        its = aliased(JobMetric)  # an order may join the table, too
        condition: ColumnElement[bool] = _COMPARED[self.compare](getattr(its, self.stat), self.value)
        return exists().where(its.job_id == Job.id, its.name == self.name, condition)


@dataclass(frozen=True)
class Order:
    """An order of jobs; those that are equal in it come newest first."""

    text: str
    descending: bool
    field: str
    metric: str = ""

    @classmethod
    def parsed(cls, text: str) -> Order:
        """Raises Problem invalid_request."""
        field = text.removeprefix("-")
        descending = field != text
        if field in ("created_at", "name", "state"):
            return cls(text, descending, field)
        name, stat = _metric(field.removeprefix("metric:"), ":")
        if not field.startswith("metric:") or not name or "\0" in name:
            raise invalid("query.sort", "no such order", found=text[:100], accepted=_SORTS)
        return cls(text, descending, stat, name)

    def page(self, query: Select[Job], cursor: str | None) -> Select[Any]:
        """``query`` in this order, from behind ``cursor``; its rows are (job, the value it is sorted by)."""
        value = self._value()
        if self.metric:
            query = query.outerjoin(JobMetric, and_(JobMetric.job_id == Job.id, JobMetric.name == self.metric))
        newest = (Job.created_at.desc(), Job.id.desc())
        if self.field == "created_at":
            key = tuple_(Job.created_at, Job.id)
            if cursor:
                after = decode_time_key(cursor)
                query = query.where(key < after if self.descending else key > after)
            order = newest if self.descending else (Job.created_at.asc(), Job.id.asc())
            return query.add_columns(value).order_by(*order)
        if cursor:
            query = query.where(self._after(value, cursor))
        direction = value.desc() if self.descending else value.asc()
        return query.add_columns(value).order_by(direction.nulls_last(), *newest)

    def cursor(self, job: Job, value: Any) -> str:
        """The cursor of the page behind this row."""
        when = job.created_at.isoformat()
        if self.field == "created_at":
            return encode(when, job.id)
        return encode(self._tag, json.dumps(value), when, job.id)

    @property
    def _tag(self) -> str:
        """Tells the cursors of one order from those of another; short, whatever a metric's name."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def _value(self) -> ColumnElement[Any]:
        if self.metric:
            found: ColumnElement[Any] = getattr(JobMetric, self.field)
            return found
        if self.field == "name":
            return func.lower(Job.name)
        if self.field == "state":
            return case(_STATES, value=Job.state)
        return Job.created_at.expression

    def _after(self, value: ColumnElement[Any], cursor: str) -> ColumnElement[bool]:
        tag, seen, when, job_id = decode(cursor, 4)
        try:
            last, at = json.loads(seen), datetime.fromisoformat(when)
        except (ValueError, RecursionError):
            last, at = None, datetime.min
        kind = str if self.field == "name" else int if self.field == "state" else float | int
        if tag != self._tag or at.tzinfo is None or not isinstance(last, kind | None) or isinstance(last, bool):
            raise invalid("query.cursor", "not a cursor of this order", accepted="`next_cursor` of the page before")
        older = tuple_(Job.created_at, Job.id) < (at, job_id)
        if last is None:
            return and_(value.is_(None), older)
        beyond = value < last if self.descending else value > last
        return or_(beyond, value.is_(None), and_(value == last, older))
