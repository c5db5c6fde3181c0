"""log-metric and log-batch: most of what MLflow's clients send, so calls that wait are stored together.

Calls of one attempt share a transaction, as its learners' own metrics do, and so do calls with one user's token. Their
common rows are looked up once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from fastapi.security import HTTPAuthorizationCredentials
from sqlalchemy import text
from sqlalchemy.orm import Session

from weft_api.access.learner_calls import LATEST
from weft_api.context import Context, Shared
from weft_api.http.bodies import parse_json
from weft_api.http.problems import Problem
from weft_api.metrics.folding import FOLDING
from weft_api.metrics.ingest import append, lock_cursor
from weft_api.metrics.schemas import RecordIn
from weft_api.mlflow.callers import (
    Caller,
    LearnerToken,
    caller_of,
    find_learners,
    over,
    read_token,
    require_editor,
    said,
    user_of,
)
from weft_api.mlflow.calls import Call
from weft_api.mlflow.runs import Run, find_run, lock_rows, set_params, set_tags
from weft_api.mlflow.values import (
    MOST_ENTITIES,
    MOST_KEPT,
    MOST_METRICS,
    MOST_PARAMS,
    MOST_TAGS,
    Arguments,
    Metric,
    kept_number,
    metric_of,
    param_of,
    read_number,
    refused,
    storable,
    tag_of,
)
from weft_api.streaming.batch_queue import BatchQueue
from weft_core.store.models import Job, MetricCursor, MlflowModel, MlflowRun
from weft_core.store.scope import Scope
from weft_core.tokens import hash_token

# One statement with arrays: one for each value would take most of the time of a call.
_POINTS = ("project_id", "run_id", "key", "step", "time", "value")
_INSERT_POINTS = text(
    "insert into mlflow_points (project_id, run_id, key, step, time, value) select * from unnest("
    "cast(:project_id as text[]), cast(:run_id as text[]), cast(:key as text[]), "
    "cast(:step as bigint[]), cast(:time as bigint[]), cast(:value as float8[]))"
)

QUEUE: Shared[BatchQueue[bytes, None]] = Shared(lambda _: BatchQueue(threads=4))


@dataclass(frozen=True)
class Logged:
    """The content of a call."""

    run_id: str
    metrics: list[Metric]
    params: list[tuple[str, str]]
    tags: dict[str, str]
    rank: int


async def accept(context: Context, bearer: HTTPAuthorizationCredentials | None, body: bytes, *, single: bool) -> None:
    """Store a log-metric (``single``) or a log-batch. Raises what :func:`take_in` finds."""
    token = read_token(context, bearer)
    # The queue keeps bodies only, so the other facts about the call go before each.
    rank, key = (token.rank, token.sha256) if isinstance(token, LearnerToken) else (0, hash_token(token))
    head = f"{int(single)} {rank}\n".encode()
    await QUEUE.of(context).run(key, head + body, lambda bodies: take_in(context, token, bodies))


def take_in(context: Context, token: LearnerToken | str, bodies: Sequence[bytes]) -> list[Exception | None]:
    """Store calls of one attempt, or with one user's token, in one transaction. A Problem is one call's alone.

    Args:
        token: the user's, or that of any learner of the attempt.
        bodies: each of them with a line before it: whether it is a log-metric, and the rank.

    Raises:
        Problem: the user's token does not open this.
    """
    whose: str | Caller
    if isinstance(token, LearnerToken):
        whose = token.sha256
    else:
        whose = caller_of(user_of(context, token))
        require_editor(whose)
    outcomes: dict[int, Exception | None] = {}
    logged: dict[int, Logged] = {}
    for number, body in enumerate(bodies):
        try:
            logged[number] = _read(context, token, body)
        except Problem as error:
            outcomes[number] = error
    if logged:
        with context.database.transaction() as session:
            stored, cursors = _store(context, session, whose, logged)
        outcomes |= stored
        for cursor in cursors:
            FOLDING.of(context).fold_if_due(cursor)
    return [outcomes[number] for number in range(len(bodies))]


def _read(context: Context, token: LearnerToken | str, body: bytes) -> Logged:
    head, _, rest = body.partition(b"\n")
    single, rank = head.split()
    given = Arguments(said(context, token, storable(parse_json(rest))))
    if single == b"1":
        return Logged(given.run_id(), [metric_of(given)], [], {}, int(rank))
    metrics = [metric_of(of) for of in given.items("metrics", MOST_METRICS)]
    params = [param_of(of) for of in given.items("params", MOST_PARAMS)]
    tags = [tag_of(of) for of in given.items("tags", MOST_TAGS)]
    if len(metrics) + len(params) + len(tags) > MOST_ENTITIES:
        raise refused(f"A batch logging request can contain at most {MOST_ENTITIES} metrics, params and tags")
    if len({key for key, _ in params}) < len(params) and len({key for key, _ in set(params)}) < len(set(params)):
        raise refused("Duplicate parameter keys have been submitted with different values")
    return Logged(given.run_id(), metrics, params, dict(tags), int(rank))


def _store(
    context: Context, session: Session, whose: str | Caller, logged: dict[int, Logged]
) -> tuple[dict[int, Exception | None], list[MetricCursor]]:
    """The outcome of each call, and the cursors of the jobs whose metrics have grown."""
    outcomes: dict[int, Exception | None] = {}
    writer = _Writer(context, session, whose, list(logged.values()))
    for run_id, several in groupby(
        sorted(logged, key=lambda number: logged[number].run_id), lambda n: logged[n].run_id
    ):
        calls = list(several)
        by_rank = groupby(sorted(calls, key=lambda number: logged[number].rank), lambda n: logged[n].rank)
        for rank, numbers in by_rank:
            mine = sorted(numbers)
            try:
                call = Call(context, session, writer.caller(rank), Arguments({}))
                run = writer.find(call, run_id)
            except Problem as error:
                outcomes.update(dict.fromkeys(mine, error))
                continue
            for number in mine:
                try:
                    writer.take(call, run, logged[number])
                    outcomes[number] = None
                except Problem as error:
                    outcomes[number] = error
    return outcomes, writer.finish()


class _Writer:
    """Collects what calls bring, and writes it with few statements."""

    def __init__(self, context: Context, session: Session, whose: str | Caller, logged: Sequence[Logged]) -> None:
        self._session = session
        self._whose = whose
        self._limits = context.settings.limits
        self._records: dict[tuple[str, int], list[tuple[int, list[RecordIn]]]] = defaultdict(list)
        self._jobs: dict[str, Job] = {}
        self._points: list[tuple[str, str, str, int, int, float]] = []
        self._learners: dict[int, Caller] = {}
        if isinstance(whose, str):
            self._learners = find_learners(session, whose, {entry.rank for entry in logged}, write=True)
        self._rows: dict[str, MlflowRun] = {}
        self._to_lock: set[str] = set()
        callers = list(self._learners.values()) if isinstance(whose, str) else [whose]
        if callers:
            job = callers[0].learner.job.id if callers[0].learner else None
            self._to_lock = {entry.run_id for entry in logged if entry.run_id != job or entry.params or entry.tags}
            self._rows = lock_rows(callers[0].scope(session), self._to_lock)

    def caller(self, rank: int) -> Caller:
        """Raises Problem."""
        if isinstance(self._whose, Caller):
            return self._whose
        if rank not in self._learners:
            raise over()
        return self._learners[rank]

    def find(self, call: Call, run_id: str) -> Run:
        """The run; its row is locked, unless only metrics of a job are written. Raises Problem."""
        learner = call.learner
        if learner and run_id not in self._to_lock:
            return Run(run_id, learner.job, None)
        run = find_run(call, run_id, write=True, locked=self._rows)
        self._rows[run_id] = run.kept
        return run

    def take(self, call: Call, run: Run, logged: Logged) -> None:
        """Raises Problem, and then nothing of this call is stored."""
        if run.job is None and run.kept.points + len(logged.metrics) > self._limits.metric_points_per_job:
            raise refused(f"the run has its limit of {self._limits.metric_points_per_job:,} values of metrics")
        if logged.params or logged.tags:
            before = run.kept.params
            set_params(run, logged.params, call.learner)
            try:
                set_tags(run, logged.tags)
            except Problem:
                run.kept.params = before
                raise
        if not logged.metrics:
            return
        if run.job is not None:
            self._take_of_job(call, run, run.job, logged.metrics)
        else:
            project = call.scope.project_id
            self._points += [
                (project, run.id, metric.key, metric.step, metric.time, metric.value) for metric in logged.metrics
            ]
            run.kept.points += len(logged.metrics)
        if not run.is_job:
            _keep_newest(run, logged.metrics)
        if any(metric.model_id for metric in logged.metrics):
            _keep_of_models(call.scope, run, logged.metrics)

    def _take_of_job(self, call: Call, run: Run, job: Job, metrics: Iterable[Metric]) -> None:
        learner = call.learner
        # A user's own values, such as of a later evaluation, count as the newest attempt's first learner's.
        attempt, rank = (learner.attempt, learner.rank) if learner else (max(1, job.attempt), 0)
        group = "" if run.is_job else run.kept.group or ""
        records = [
            RecordIn.model_construct(
                t=min(time, LATEST),
                kind="user",
                group=group,
                etimes={"iteration": step},
                values={metric.key: metric.value for metric in together},
                types={},
            )
            for (time, step), together in groupby(metrics, lambda metric: (metric.time, metric.step))
        ]
        self._jobs[job.id] = job
        self._records[job.id, attempt].append((rank, records))

    def finish(self) -> list[MetricCursor]:
        """Write all of it; returns the cursors of the jobs among the runs."""
        cursors: dict[str, MetricCursor] = {}
        for (job_id, attempt), batches in sorted(self._records.items()):
            job = self._jobs[job_id]
            cursors[job_id] = lock_cursor(self._session, job)
            append(self._session, job, cursors[job_id], attempt, batches, self._limits)
        if self._points:
            columns = zip(_POINTS, zip(*self._points, strict=True), strict=True)
            self._session.execute(_INSERT_POINTS, {name: list(values) for name, values in columns})
        return list(cursors.values())


def _keep_newest(run: Run, metrics: Iterable[Metric]) -> None:
    """As in MLflow, the newest value is the one with the largest step, then with the largest time and value."""
    row = run.kept
    kept = dict(row.metrics)
    for metric in metrics:
        before = kept.get(metric.key)
        new = (metric.step, metric.time, metric.value)
        if before is None or not (before[1], before[2], read_number(before[0])) > new:
            kept[metric.key] = [kept_number(metric.value), metric.step, metric.time]
    if len(kept) > max(MOST_KEPT, len(row.metrics)):
        kept = dict(list(kept.items())[:MOST_KEPT])
    row.metrics = kept


def _keep_of_models(scope: Scope, run: Run, metrics: Iterable[Metric]) -> None:
    by_model: dict[str, list[Metric]] = defaultdict(list)
    for metric in metrics:
        if metric.model_id:
            by_model[metric.model_id].append(metric)
    rows = scope.select(MlflowModel, MlflowModel.id.in_(by_model)).order_by(MlflowModel.id).with_for_update()
    for row in scope.all(rows):
        if run.job is not None and row.job_id != run.job.id:
            continue
        known = {(entry["key"], json.dumps(entry.get("dataset"))): entry for entry in row.metrics}
        for metric in by_model[row.id]:
            known[metric.key, json.dumps(metric.dataset)] = {
                "key": metric.key,
                "value": kept_number(metric.value),
                "step": metric.step,
                "timestamp": metric.time,
                "run_id": run.id,
                "dataset": metric.dataset,
            }
        row.metrics = list(known.values())[:MOST_KEPT]
