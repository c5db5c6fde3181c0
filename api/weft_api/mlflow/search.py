"""Searching runs: the jobs and the other runs of experiments."""

from __future__ import annotations

from typing import Any

from sqlalchemy import or_, select

from weft_api.metrics.listing import best_and_last
from weft_api.mlflow.calls import Call
from weft_api.mlflow.experiments import in_experiments
from weft_api.mlflow.filters import Field, Order, cut, ordered, parse_filter, parse_orders
from weft_api.mlflow.runs import Run, Seen
from weft_core.store.models import Job, MlflowRun, User

_MOST = 5000
"""The newest jobs, and the newest other runs, among which is searched."""
_MOST_EXPERIMENTS = 1000


def search(call: Call) -> dict[str, Any]:
    given = call.given
    view = (given.text_or_none("run_view_type") or "ACTIVE_ONLY").upper()
    wanted = parse_filter(given.text_or_none("filter", 10_000) or "")
    orders = [
        *parse_orders(given.texts("order_by", 20)),
        Order(Field("attributes", "start_time"), True),
        Order(Field("attributes", "run_id"), False),
    ]
    found = [
        run
        for run in _candidates(call, given.texts("experiment_ids", _MOST_EXPERIMENTS))
        if view == "ALL" or run.deleted == (view == "DELETED_ONLY")
    ]
    # Most searches need the metrics of one page only.
    measured = any(field.kind == "metrics" for field in (*wanted.fields, *(order.by for order in orders)))
    if measured:
        found = _with_metrics(call, found)
    chosen = ordered([run for run in found if wanted.holds(run.field)], Seen.field, orders)
    runs, token = cut(chosen, given, 1000)
    answer: dict[str, Any] = {"runs": [run.answer for run in (runs if measured else _with_metrics(call, runs))]}
    return answer | ({"next_page_token": token} if token else {})


def _candidates(call: Call, experiments: list[str]) -> list[Seen]:
    jobs, others = call.scope.select(Job, Job.kind == "train"), call.scope.select(MlflowRun)
    others = others.where(or_(MlflowRun.job_id.is_(None), MlflowRun.job_id != MlflowRun.id))
    if call.learner:  # all experiments that it names are its job's
        jobs = jobs.where(Job.id == call.learner.job.id)
        others = others.where(MlflowRun.job_id == call.learner.job.id)
    elif experiments:
        jobs = jobs.where(in_experiments(*experiments))
        others = others.where(MlflowRun.experiment_id.in_(experiments))
    else:
        return []
    found_jobs = call.scope.all(jobs.order_by(Job.created_at.desc()).limit(_MOST))
    found_rows = call.scope.all(others.order_by(MlflowRun.start_time.desc()).limit(_MOST))
    owners = {row.job_id for row in found_rows if row.job_id} - {job.id for job in found_jobs}
    known = {job.id: job for job in [*found_jobs, *call.scope.all(call.scope.select(Job, Job.id.in_(owners)))]}
    own = call.scope.all(call.scope.select(MlflowRun, MlflowRun.id.in_([job.id for job in found_jobs])))
    rows = {row.id: row for row in own}
    ids = {job.user_id for job in known.values()}
    users = dict(call.session.execute(select(User.id, User.name).where(User.id.in_(ids))).all())
    return [
        *(Seen(Run(job.id, job, rows.get(job.id)), users[job.user_id], {}) for job in found_jobs),
        *(_other(row, known, users) for row in found_rows),
    ]


def _other(row: MlflowRun, jobs: dict[str, Job], users: dict[str, str]) -> Seen:
    job = jobs[row.job_id] if row.job_id else None
    return Seen(Run(row.id, job, row), users[job.user_id] if job else row.user, {})


def _with_metrics(call: Call, runs: list[Seen]) -> list[Seen]:
    metrics = best_and_last(call.scope, [run.run.id for run in runs if run.run.is_job])
    return [Seen(seen.run, seen.user, metrics.get(seen.run.id, {})) for seen in runs]
