"""Finding the jobs of a page: in the time that the page takes, however many jobs the project has.

Each order and each condition has an index, and a page is read along one of them. Where an order starts anew, behind a
cursor or with the next state, an index has to be entered anew: that is a branch, which reads no more than a page.

A text or a parameter is first looked for among the next jobs of the order, which is enough if many jobs have it. The
indexes of pieces of texts and of parameters find rarer ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    DateTime,
    FromClause,
    Integer,
    Interval,
    Select,
    asc,
    cast,
    desc,
    exists,
    false,
    func,
    literal,
    null,
    select,
    text,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, array

from weft_api.jobs.ordering import MetricCondition, Order, Position
from weft_core.lifecycle.states import JobState
from weft_core.store.models import Job, JobLabel, JobMetric, JobText, MlflowRun, User
from weft_core.store.scope import Scope

_LOOKED_THROUGH = 1000
"""Jobs among which a text or a parameter is looked for first."""
_INTEGERS = ARRAY(Integer)
_STATES = [state.value for state in JobState]

Keys = Sequence[tuple[str, bool]]
"""The columns of :class:`Position` that a page is sorted by, and whether descending."""
_NEWEST: Keys = (("at", True), ("id", True))


@dataclass(frozen=True)
class JobFilter:
    """The conditions for a list of jobs; empty members limit nothing."""

    states: Sequence[JobState] = ()
    labels: Sequence[tuple[str, str]] = ()
    text: str = ""
    since: datetime | None = None
    metrics: Sequence[MetricCondition] = ()
    engine: str = ""
    user: str = ""
    params: Sequence[tuple[str, str | None]] = ()
    """Parameters to show, by name. Those with a value are conditions."""
    pinned: bool = False

    @property
    def limits(self) -> bool:
        """Whether there is any condition."""
        return (
            any((self.states, self.labels, self.text, self.since, self.metrics, self.engine, self.user, self.logged))
            or self.pinned
        )

    @property
    def logged(self) -> dict[str, str]:
        """The values that parameters must have."""
        return {name: value for name, value in self.params if value is not None}


class _Branch(NamedTuple):
    """Rows (id, at, value) that one index has in their order."""

    rows: Select[Any]
    order: Sequence[ColumnElement[Any]]


def find_page(scope: Scope, wanted: JobFilter, order: Order, limit: int, cursor: str | None) -> list[Position]:
    """The next ``limit`` jobs of the project. Raises Problem invalid_request for a cursor of another order."""
    position = order.position(cursor) if cursor else None
    if wanted.limits:
        # Each state, user or label may need a plan of its own. Postgres would use one plan for all values of a
        # statement that comes often.
        scope.session.execute(text("select set_config('plan_cache_mode', 'force_custom_plan', true)"))
    return _Search(scope, wanted, order).page(position, limit)


class _Search:
    def __init__(self, scope: Scope, wanted: JobFilter, order: Order) -> None:
        self._scope = scope
        # A list by time is read along the first label: that whose newest job is the oldest.
        several = len(wanted.labels) > 1
        self._wanted = replace(wanted, labels=sorted(wanted.labels, key=self._newest)) if several else wanted
        self._order = order
        self._user_id = wanted.user and scope.session.scalar(select(User.id).where(User.name == wanted.user))
        self._matching: FromClause | None = None
        """The jobs with the text and the parameters, once they have been looked up, with the columns of their view."""
        self._until = scope.session.scalar(select(func.now())) if order.field == "duration" else None
        """The moment until which the durations of running jobs count."""

    def _newest(self, label: tuple[str, str]) -> float:
        """When the newest job with a label was submitted; -inf if there is none."""
        labels = self._scope.listed(JobLabel)
        its = select(labels.c.created_at).where(labels.c.key == label[0], labels.c.value == label[1])
        at: datetime | None = self._scope.session.scalar(its.order_by(labels.c.created_at.desc()).limit(1))
        return at.timestamp() if at else float("-inf")

    def page(self, after: Position | None, limit: int) -> list[Position]:
        wanted, order = self._wanted, self._order
        if wanted.user and not self._user_id:
            return []
        if not order.partial:
            keys = _NEWEST if order.field != "created_at" else [(name, order.descending) for name, _ in _NEWEST]
            if order.field != "created_at":
                keys = [("value", order.descending), *keys]
            return self._run(after, keys, limit)
        found: list[Position] = []
        if after is None or after.value is not None:
            self._until = after.at if after else self._until
            found = self._run(after, [("value", order.descending), ("id", order.descending)], limit)
            after = None
        if len(found) < limit:  # then those without the value
            found += self._run(after, _NEWEST, limit - len(found))
        return found

    def _run(self, after: Position | None, keys: Keys, limit: int) -> list[Position]:
        if not self._wanted.text and not self._wanted.logged:
            return self._read(_sorted(self._merged(after, keys, limit), keys, limit))
        next_ones = _sorted(self._merged(after, keys, _LOOKED_THROUGH), keys, _LOOKED_THROUGH).subquery()
        found = self._read(_sorted(self._near(next_ones), keys, limit))
        if len(found) == limit:
            return found
        self._matching = self._materialized(self._matches())
        found = self._read(_sorted(self._merged(after, keys, limit), keys, limit))
        self._matching = None
        return found

    def _near(self, next_ones: FromClause) -> Select[Any]:
        """Those of these jobs that have the text and the parameters."""
        near = select(next_ones)
        if self._wanted.text:
            texts = self._scope.listed(JobText)
            near = near.join(texts, texts.c.job_id == next_ones.c.id).where(texts.c.body.like(self._pattern))
        if self._wanted.logged:
            runs = self._scope.listed(MlflowRun)
            near = near.join(runs, runs.c.job_id == next_ones.c.id).where(*self._has_logged(runs))
        return near

    def _matches(self) -> Select[Any]:
        """The ids of all jobs that have the text and the parameters."""
        texts, runs = self._scope.listed(JobText), self._scope.listed(MlflowRun)
        has_text: list[ColumnElement[bool]] = []
        has_logged: list[ColumnElement[bool]] = []
        if self._wanted.text:
            pieces = func.weft_pieces(texts.c.project_id, texts.c.body, type_=_INTEGERS)
            sought = func.weft_wanted_pieces(self._scope.project_id, func.lower(self._wanted.text), type_=_INTEGERS)
            has_text = [pieces.contains(sought), texts.c.body.like(self._pattern)]
        if self._wanted.logged:
            values = [f"{self._scope.project_id} {name}={value}" for name, value in self._wanted.logged.items()]
            hashed = array([func.hashtext(value, type_=Integer) for value in values])
            numbers = func.weft_params(runs.c.project_id, runs.c.params, type_=_INTEGERS)
            has_logged = [numbers.contains(hashed), *self._has_logged(runs)]
        if not has_logged:
            return select(texts.c.job_id, texts.c.created_at).where(*has_text)
        found = select(runs.c.job_id).where(*has_logged)
        return found.join(texts, texts.c.job_id == runs.c.job_id).where(*has_text) if has_text else found

    @property
    def _pattern(self) -> ColumnElement[str]:
        plain = self._wanted.text.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
        return func.lower(f"%{plain}%")

    def _has_logged(self, runs: FromClause) -> list[ColumnElement[bool]]:
        # An entry is [value, attempt, learner].
        return [runs.c.params.op("->")(name).op("->>")(0) == value for name, value in self._wanted.logged.items()]

    def _materialized(self, matching: Select[Any]) -> FromClause:
        """Else Postgres might walk along an order until it meets one of them."""
        found = matching.cte("found").prefix_with("MATERIALIZED")
        if not self._asks_jobs:
            return found
        jobs = self._scope.listed(Job)
        return select(jobs).join(found, found.c.job_id == jobs.c.id).cte("matching").prefix_with("MATERIALIZED")

    @property
    def _asks_jobs(self) -> bool:
        """Whether a condition concerns a column that only the table of jobs has."""
        wanted = self._wanted
        own = (wanted.states, wanted.engine, wanted.user, wanted.logged, wanted.pinned)
        return any(own) or self._order.field in ("name", "state", "duration")

    def _read(self, rows: Select[Any]) -> list[Position]:
        return [Position(*row) for row in self._scope.session.execute(rows)]

    # --- branches --------------------------------------------------------------------------------------------

    def _merged(self, after: Position | None, keys: Keys, limit: int) -> Select[Any]:
        branches = self._branches(after, keys)
        parts = [branch.rows.order_by(*branch.order).limit(limit) for branch in branches]
        if len(parts) == 1:
            return parts[0]
        return select(union_all(*(select(part.subquery()) for part in parts)).subquery())

    def _branches(self, after: Position | None, keys: Keys) -> list[_Branch]:
        if self._order.metric:
            return [self._measured(after) if keys[0][0] == "value" else self._unmeasured(after)]
        if self._order.field == "duration":
            return self._by_duration(after) if keys[0][0] == "value" else [self._unstarted(after)]
        if self._order.field == "name":
            return self._by_name(after)
        if self._order.field == "state":
            return self._by_state(after)
        return self._by_time(after)

    def _by_time(self, after: Position | None) -> list[_Branch]:
        source, job_id, at, driving = self._source()
        rows = select(job_id.label("id"), at.label("at"), null().label("value")).select_from(source)
        rows = rows.where(*self._conditions(source, job_id, at, driving))
        down = self._order.descending
        if after is not None:
            key = tuple_(at, job_id)
            rows = rows.where(key < (after.at, after.id) if down else key > (after.at, after.id))
        order = [_directed(at, down), _directed(job_id, down)]
        states = self._wanted.states
        if "state" not in source.c:
            return [_Branch(rows, order)]
        return [_Branch(rows.where(source.c.state == state), order) for state in dict.fromkeys(states)] or [
            _Branch(rows, order)
        ]

    def _source(self) -> tuple[FromClause, Any, Any, bool]:
        """The table that a list by time is read from, its ids and times, and whether it already fulfils the first
        label."""
        if self._matching is not None:
            c = self._matching.c
            return self._matching, c.id if "id" in c else c.job_id, c.created_at, False
        if self._wanted.labels:
            (key, value), *_ = self._wanted.labels
            labels = self._scope.listed(JobLabel)
            rows = select(labels).where(labels.c.key == key, labels.c.value == value)
            if self._asks_jobs:
                jobs = self._scope.listed(Job)
                rows = rows.join(jobs, jobs.c.id == labels.c.job_id)
                rows = rows.add_columns(jobs.c.user_id, jobs.c.state, jobs.c.engine, jobs.c.pinned)
            source = rows.subquery()
            return source, source.c.job_id, source.c.created_at, True
        if self._wanted.text and not self._asks_jobs:
            texts = self._scope.listed(JobText)
            return texts, texts.c.job_id, texts.c.created_at, False
        jobs = self._scope.listed(Job)
        return jobs, jobs.c.id, jobs.c.created_at, False

    def _by_name(self, after: Position | None) -> list[_Branch]:
        jobs = self._jobs()
        name = func.lower(jobs.c.name)
        rows = self._all_of(jobs, name)
        order = [_directed(name, self._order.descending), jobs.c.created_at.desc(), jobs.c.id.desc()]
        if after is None:
            return [_Branch(rows, order)]
        beyond = name < after.value if self._order.descending else name > after.value
        same = rows.where(name == after.value, _older(jobs, after))
        return [_Branch(same, order[1:]), _Branch(rows.where(beyond), order)]

    def _by_state(self, after: Position | None) -> list[_Branch]:
        jobs = self._jobs()
        branches = []
        for number, state in enumerate(_STATES):
            if self._wanted.states and state not in self._wanted.states:
                continue
            if after is not None and (number > after.value if self._order.descending else number < after.value):
                continue
            rows = self._all_of(jobs, literal(number), of_states=False).where(jobs.c.state == state)
            if after is not None and number == after.value:
                rows = rows.where(_older(jobs, after))
            branches.append(_Branch(rows, [jobs.c.created_at.desc(), jobs.c.id.desc()]))
        return branches or [_Branch(self._all_of(jobs, literal(0)).where(false()), [])]

    def _by_duration(self, after: Position | None) -> list[_Branch]:
        """The jobs that have ended, and those that run: the duration of the latter grows, so it counts until a moment
        that the cursor keeps."""
        jobs, down = self._jobs(), self._order.descending
        until = literal(self._until, DateTime(timezone=True))
        lasted, lasts = jobs.c.ended_at - jobs.c.started_at, until - jobs.c.started_at
        ended = self._all_of(jobs, lasted, until).where(jobs.c.started_at.is_not(None), jobs.c.ended_at.is_not(None))
        running = self._all_of(jobs, lasts, until).where(jobs.c.started_at.is_not(None), jobs.c.ended_at.is_(None))
        if after is not None:
            last = tuple_(literal(after.value), literal(after.id))
            for_ended, for_running = tuple_(lasted, self._id(jobs)), tuple_(lasts, self._id(jobs))
            ended = ended.where(for_ended < last if down else for_ended > last)
            running = running.where(for_running < last if down else for_running > last)
        order = [_directed(lasted, down), _directed(self._id(jobs), down)]
        return [
            _Branch(ended, order),
            _Branch(running, [_directed(jobs.c.started_at, not down), _directed(self._id(jobs), down)]),
        ]

    def _unstarted(self, after: Position | None) -> _Branch:
        jobs = self._jobs()
        rows = self._all_of(jobs, cast(null(), Interval)).where(jobs.c.started_at.is_(None))
        if after is not None:
            rows = rows.where(_older(jobs, after))
        return _Branch(rows, [jobs.c.created_at.desc(), self._id(jobs).desc()])

    def _measured(self, after: Position | None) -> _Branch:
        metrics = self._scope.listed(JobMetric)
        value, job_id, at = metrics.c[self._order.field], metrics.c.job_id, null()
        rows = select(job_id.label("id"), at.label("at"), value.label("value"))
        rows = rows.where(metrics.c.name == self._order.metric, value.is_not(None))
        if after is not None:
            key, last = tuple_(value, job_id), tuple_(literal(float(after.value)), literal(after.id))
            rows = rows.where(key < last if self._order.descending else key > last)
        if self._asks_jobs or self._wanted.since or self._matching is not None:
            jobs = self._jobs()
            own = self._id(jobs)
            rows = rows.join(jobs, own == job_id).where(*self._conditions(jobs, own, jobs.c.created_at, of_states=True))
        else:
            rows = rows.where(*self._conditions(metrics, job_id, at))
        down = self._order.descending
        return _Branch(rows, [_directed(value, down), _directed(job_id, down)])

    def _unmeasured(self, after: Position | None) -> _Branch:
        jobs, metrics = self._jobs(), self._scope.listed(JobMetric)
        its = self._id(jobs)
        measured = exists().where(
            metrics.c.job_id == its, metrics.c.name == self._order.metric, metrics.c[self._order.field].is_not(None)
        )
        rows = self._all_of(jobs, null()).where(~measured)
        if after is not None:
            rows = rows.where(tuple_(jobs.c.created_at, its) < (after.at, after.id))
        return _Branch(rows, [jobs.c.created_at.desc(), its.desc()])

    # --- conditions ------------------------------------------------------------------------------------------

    def _jobs(self) -> FromClause:
        return self._scope.listed(Job) if self._matching is None else self._matching

    @staticmethod
    def _id(jobs: FromClause) -> ColumnElement[str]:
        found: ColumnElement[str] = jobs.c.id if "id" in jobs.c else jobs.c.job_id
        return found

    def _all_of(self, jobs: FromClause, value: Any, until: Any = None, *, of_states: bool = True) -> Select[Any]:
        job_id, at = self._id(jobs), jobs.c.created_at
        shown = at if until is None else until
        rows = select(job_id.label("id"), shown.label("at"), value.label("value")).select_from(jobs)
        return rows.where(*self._conditions(jobs, job_id, at, of_states=of_states))

    def _conditions(
        self, rows: FromClause, job_id: Any, at: Any, driving: bool = False, of_states: bool = False
    ) -> list[ColumnElement[bool]]:
        """All conditions except the text, and except the states unless ``of_states``. ``driving``: the first label is
        fulfilled already."""
        wanted = self._wanted
        found = [condition.holds(self._scope, job_id) for condition in wanted.metrics]
        if of_states and wanted.states:
            found.append(rows.c.state.in_([state.value for state in wanted.states]))
        if wanted.since:
            found.append(at >= wanted.since)
        if wanted.pinned:
            found.append(rows.c.pinned)
        if wanted.engine:
            found.append(rows.c.engine == wanted.engine)
        if wanted.user:
            found.append(rows.c.user_id == self._user_id)
        for key, value in wanted.labels[1 if driving else 0 :]:
            labels = self._scope.listed(JobLabel)
            found.append(exists().where(labels.c.job_id == job_id, labels.c.key == key, labels.c.value == value))
        return found


def _older(jobs: FromClause, position: Position) -> ColumnElement[bool]:
    older: ColumnElement[bool] = tuple_(jobs.c.created_at, jobs.c.id) < (position.at, position.id)
    return older


def _directed(column: ColumnElement[Any], descending: bool) -> ColumnElement[Any]:
    directed: ColumnElement[Any] = desc(column) if descending else asc(column)
    return directed


def _sorted(rows: Select[Any], keys: Keys, limit: int) -> Select[Any]:
    part = rows.subquery()
    order = [_directed(part.c[name], descending) for name, descending in keys]
    return select(part.c.id, part.c.at, part.c.value).order_by(*order).limit(limit)
