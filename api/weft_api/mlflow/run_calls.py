"""The calls about single runs, apart from log-metric and log-batch."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from sqlalchemy import func, select

from weft_api.http.audited import about
from weft_api.http.problems import NOT_FOUND, Problem
from weft_api.metrics.listing import best_and_last
from weft_api.metrics.records import clean_name
from weft_api.mlflow.callers import OfLearner
from weft_api.mlflow.calls import Call
from weft_api.mlflow.experiments import active_experiment, experiment_id
from weft_api.mlflow.runs import NAME_TAG, PARENT_TAG, STATUSES, Run, Seen, find_run, refuse_job, set_params, set_tags
from weft_api.mlflow.values import LONGEST_KEY, Arguments, param_of, refused, tag_of
from weft_core.store.models import MlflowRun, User

_MOST_INPUTS = 1000
_MOST_RUNS_OF_A_JOB = 10_000
_LONGEST_HISTORY = 100_000
"""Characters of the tag in which MLflow 2 lists the models of a run."""
_HISTORY_TAG = "mlflow.log-model.history"


def see(call: Call, run: Run) -> Seen:
    """With the newest values of its metrics."""
    job = run.job
    user = call.session.scalar(select(User.name).where(User.id == job.user_id)) or "" if job else run.kept.user
    metrics = best_and_last(call.scope, [run.id])[run.id] if run.is_job else {}
    return Seen(run, user, metrics)


def get(call: Call) -> dict[str, Any]:
    return {"run": see(call, find_run(call, call.given.run_id())).answer}


def create(call: Call) -> dict[str, Any]:
    """A learner's first run is its job's own, unless it is nested into another."""
    given = call.given
    tags = dict(tag_of(tag) for tag in given.items("tags", 1000))
    name = given.text_or_none("run_name", LONGEST_KEY) or tags.get(NAME_TAG)
    started = given.integer("start_time", 0) or int(time.time() * 1000)
    if call.learner:
        run = _of_learner(call, call.learner, name, started, nested=PARENT_TAG in tags)
    else:
        experiment = active_experiment(call.scope, given.text_or_none("experiment_id") or "0")
        run_id = uuid.uuid4().hex
        row = MlflowRun(
            id=run_id,
            experiment_id=experiment.id,
            name=name or f"run-{run_id[:8]}",
            user=given.text_or_none("user_id") or call.caller.user,
            status="RUNNING",
            start_time=started,
        )
        about("run", run_id)
        run = Run(run_id, None, call.scope.add(row))
    call.session.flush()
    call.session.refresh(run.kept)
    set_tags(run, tags | ({NAME_TAG: name} if name else {}))
    return {"run": see(call, run).answer}


def _of_learner(call: Call, learner: OfLearner, name: str | None, started: int, *, nested: bool) -> Run:
    job = learner.job
    own = find_run(call, job.id, write=True)
    if not nested and _open(own, learner):
        return own
    count = select(func.count()).where(MlflowRun.job_id == job.id)
    have = call.session.scalar(count) or 0
    if have >= _MOST_RUNS_OF_A_JOB:
        raise refused(f"a job can have {_MOST_RUNS_OF_A_JOB} runs")
    name = name or f"run-{have + 1}"
    run_id = uuid.uuid4().hex
    row = MlflowRun(
        id=run_id,
        job_id=job.id,
        attempt=learner.attempt,
        rank=learner.rank,
        group=_group(call, learner, name),
        experiment_id=experiment_id(job.name),
        name=name,
        user=call.caller.user,
        status="RUNNING",
        start_time=started,
    )
    return Run(run_id, job, call.scope.add(row))


def _open(own: Run, learner: OfLearner) -> bool:
    """Whether the learner had not taken the job's own run before."""
    row = own.kept
    ranks: list[int] = row.opened["ranks"] if row.opened.get("attempt") == learner.attempt else []
    if learner.rank in ranks:
        return False
    row.opened = {"attempt": learner.attempt, "ranks": [*ranks, learner.rank]}
    return True


def _group(call: Call, learner: OfLearner, name: str) -> str:
    """The group of the run's metrics among its job's: the run's name, with a number for the second of the name."""
    query = select(MlflowRun.group).where(
        MlflowRun.job_id == learner.job.id, MlflowRun.attempt == learner.attempt, MlflowRun.rank == learner.rank
    )
    taken = set(call.session.scalars(query))
    group, number = clean_name(name) or "run", 1
    while group in taken:
        number += 1
        group = clean_name(f"{name}-{number}")
    return group


def update(call: Call) -> dict[str, Any]:
    """The status of a job's own run is the job's: what its learners say of it changes nothing."""
    given = call.given
    run = find_run(call, given.run_id(), write=True)
    row = run.kept
    status, name = given.text_or_none("status"), given.text_or_none("run_name", LONGEST_KEY)
    if status and status not in STATUSES:
        raise refused(f"Invalid value '{status[:40]}' for parameter 'status' supplied: expected {', '.join(STATUSES)}")
    if run.is_job and call.learner:
        _open(run, call.learner)
    elif not run.is_job and status:
        row.status = status
        row.end_time = given.integer("end_time", 0) or None
    if name:
        set_tags(run, {NAME_TAG: name})
    return {"run_info": see(call, run).info}


def delete(call: Call) -> dict[str, Any]:
    run = find_run(call, call.given.run_id())
    refuse_job(run, "deleted")
    run.kept.deleted_at = func.now()
    return {}


def restore(call: Call) -> dict[str, Any]:
    run = find_run(call, call.given.run_id())
    refuse_job(run, "restored")
    run.kept.deleted_at = None
    return {}


def log_parameter(call: Call) -> dict[str, Any]:
    run = find_run(call, call.given.run_id(), write=True)
    set_params(run, [param_of(call.given)], call.learner)
    return {}


def set_tag(call: Call) -> dict[str, Any]:
    run = find_run(call, call.given.run_id(), write=True)
    set_tags(run, dict([tag_of(call.given)]))
    return {}


def delete_tag(call: Call) -> dict[str, Any]:
    run, key = find_run(call, call.given.run_id(), write=True), call.given.text("key")
    if key not in run.kept.tags:
        raise Problem(NOT_FOUND, f"No tag with name: {key} in run with id {run.id}")
    run.kept.tags = {name: value for name, value in run.kept.tags.items() if name != key}
    return {}


def log_model(call: Call) -> dict[str, Any]:
    """MLflow 2's description of a model whose files it has already sent."""
    run = find_run(call, call.given.run_id(), write=True)
    try:
        model = json.loads(call.given.text("model_json", _LONGEST_HISTORY))
        before = json.loads(run.kept.tags.get(_HISTORY_TAG, "[]"))
    except (ValueError, RecursionError):
        raise refused("Malformed model info: model_json is not valid JSON") from None
    if not isinstance(model, dict) or not isinstance(before, list):
        raise refused("Malformed model info: model_json is no object")
    if missing := {"artifact_path", "flavors", "utc_time_created", "run_id"} - model.keys():
        raise refused(f"Model json is missing mandatory fields: {sorted(missing)}")
    history = json.dumps([*before, model])
    if len(history) > _LONGEST_HISTORY:
        raise refused(f"the run has too many models: their descriptions exceed {_LONGEST_HISTORY} characters")
    set_tags(run, {_HISTORY_TAG: history})
    return {}


def log_inputs(call: Call) -> dict[str, Any]:
    run = find_run(call, call.given.run_id(), write=True)
    datasets = [_dataset(of) for of in call.given.items("datasets", _MOST_INPUTS)]
    models = [{"model_id": of.text("model_id")} for of in call.given.items("models", _MOST_INPUTS)]
    kept = run.kept.inputs
    merged = {_which(entry): entry for entry in [*kept.get("datasets", []), *datasets]}
    known = {entry["model_id"]: entry for entry in [*kept.get("models", []), *models]}
    if len(merged) + len(known) > _MOST_INPUTS:
        raise refused(f"a run can have {_MOST_INPUTS} inputs")
    run.kept.inputs = {"datasets": list(merged.values()), "models": list(known.values())}
    return {}


def _dataset(of: Arguments) -> dict[str, Any]:
    told = Arguments(of.find("dataset") or {})
    dataset: dict[str, Any] = {
        "name": told.text("name", 500),
        "digest": told.text("digest", 36),
        "source_type": told.text_or_none("source_type") or "",
        "source": told.text_or_none("source", 65_535) or "",
    }
    for name, longest in (("schema", 1_048_575), ("profile", 2_000_000)):
        if value := told.text_or_none(name, longest):
            dataset[name] = value
    tags = [
        {"key": tag.text("key", 255), "value": tag.text_or_none("value", 500) or ""} for tag in of.items("tags", 100)
    ]
    return {"dataset": dataset, "tags": tags}


def _which(entry: dict[str, Any]) -> tuple[str, ...]:
    return entry["dataset"]["name"], entry["dataset"]["digest"]


def log_outputs(call: Call) -> dict[str, Any]:
    run = find_run(call, call.given.run_id(), write=True)
    if call.given.find("models") is None:
        raise refused("Missing value for required parameter 'models'.")
    models = [
        {"model_id": of.text("model_id"), "step": of.integer("step", 0, least=-(2**63))}
        for of in call.given.items("models", _MOST_INPUTS)
    ]
    if len(run.kept.outputs) + len(models) > _MOST_INPUTS:
        raise refused(f"a run can have {_MOST_INPUTS} outputs")
    run.kept.outputs = [*run.kept.outputs, *models]
    return {}
