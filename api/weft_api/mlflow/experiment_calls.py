"""The calls about experiments."""

from __future__ import annotations

import time
import uuid
from typing import Any

from sqlalchemy import func
from sqlalchemy.dialects.postgresql import insert

from weft_api.http.problems import EXISTS, NOT_FOUND, Problem
from weft_api.mlflow.calls import Call
from weft_api.mlflow.experiments import (
    DEFAULT_ID,
    DEFAULT_NAME,
    Experiment,
    experiment_id,
    experiments_of_jobs,
    find_by_name,
    find_experiment,
    in_experiments,
)
from weft_api.mlflow.filters import Field, Filter, Order, page, parse_filter, parse_orders
from weft_api.mlflow.runs import find_run, set_tags
from weft_api.mlflow.values import LONGEST_EXPERIMENT, LONGEST_EXPERIMENT_TAG, Arguments, refused, tag_of
from weft_core.store.models import MlflowExperiment

_MOST = 5000


def _own(call: Call) -> Experiment | None:
    """The experiment of a learner's job."""
    return find_experiment(call.scope, experiment_id(call.learner.job.name)) if call.learner else None


def get(call: Call) -> dict[str, Any]:
    return {"experiment": (_own(call) or find_experiment(call.scope, call.given.text("experiment_id"))).answer}


def get_by_name(call: Call) -> dict[str, Any]:
    name = call.given.text("experiment_name", LONGEST_EXPERIMENT)
    if own := _own(call):
        return {"experiment": own.answer | {"name": name}}
    found = find_by_name(call.scope, name)
    if found is None:
        raise Problem(NOT_FOUND, f"Could not find experiment with name '{name}'")
    return {"experiment": found.answer}


def create(call: Call) -> dict[str, Any]:
    name = call.given.text("name", LONGEST_EXPERIMENT)
    if own := _own(call):
        return {"experiment_id": own.id}
    if call.given.text_or_none("artifact_location", 1024):
        raise refused("artifact_location can't be chosen: Weft keeps the artifacts")
    tags = dict(tag_of(tag, LONGEST_EXPERIMENT_TAG) for tag in call.given.items("tags", 100))
    if found := find_by_name(call.scope, name):
        state = "in deleted state. You can restore it" if found.deleted else "there"
        raise Problem(EXISTS, f"Experiment(name={name}) already exists: it is {state}.")
    made = experiment_id(name)
    if call.scope.find(MlflowExperiment, MlflowExperiment.id == made):  # it has been renamed since
        made = uuid.uuid4().hex
    added = insert(MlflowExperiment).values(project_id=call.scope.project_id, id=made, name=name, tags=tags)
    if not call.session.execute(added.on_conflict_do_nothing().returning(MlflowExperiment.id)).scalar():
        raise Problem(EXISTS, f"Experiment(name={name}) already exists.")
    return {"experiment_id": made}


def _row(call: Call) -> MlflowExperiment:
    """The row of the experiment that the call changes, locked; made if it has none."""
    found = find_experiment(call.scope, call.given.text("experiment_id"))
    made = insert(MlflowExperiment).values(project_id=call.scope.project_id, id=found.id, name=found.name)
    call.session.execute(made.on_conflict_do_nothing())
    row = call.scope.find(MlflowExperiment, MlflowExperiment.id == found.id, lock=True)
    if row is None:
        raise Problem(NOT_FOUND, f"No Experiment with id={found.id} exists")
    row.updated_at = func.now()
    return row


def _refuse_learner(call: Call) -> None:
    if call.learner:
        raise refused("a job's experiment can't be changed from within the job")


def update(call: Call) -> dict[str, Any]:
    _refuse_learner(call)
    name = call.given.text("new_name", LONGEST_EXPERIMENT)
    row = _row(call)
    if row.deleted_at is not None:
        raise refused("Cannot rename a non-active experiment.")
    other = find_by_name(call.scope, name)
    if other and other.id != row.id:
        raise Problem(EXISTS, f"Experiment(name={name}) already exists.")
    if experiments_of_jobs(call.scope, in_experiments(row.id), most=1):
        raise refused(f"the experiment {row.name!r} can't be renamed: it holds the jobs with this name")
    row.name = name
    return {}


def delete(call: Call) -> dict[str, Any]:
    """Hides the experiment; its jobs and runs stay."""
    _refuse_learner(call)
    row = _row(call)
    if row.id == DEFAULT_ID:
        raise refused("the experiment Default can't be deleted")
    row.deleted_at = func.now()
    return {}


def restore(call: Call) -> dict[str, Any]:
    _refuse_learner(call)
    _row(call).deleted_at = None
    return {}


def set_tag(call: Call) -> dict[str, Any]:
    """A learner's goes to its job: the experiment is not the job's alone."""
    key, value = tag_of(call.given, LONGEST_EXPERIMENT_TAG)
    if call.learner:
        set_tags(find_run(call, call.learner.job.id, write=True), {key: value})
    else:
        row = _row(call)
        row.tags = {**row.tags, key: value}
    return {}


def delete_tag(call: Call) -> dict[str, Any]:
    _refuse_learner(call)
    row, key = _row(call), call.given.text("key")
    if key not in row.tags:
        raise Problem(NOT_FOUND, f"No tag with name: {key} in experiment with id {row.id}")
    row.tags = {name: value for name, value in row.tags.items() if name != key}
    return {}


def search(call: Call) -> dict[str, Any]:
    given: Arguments = call.given
    view = given.text_or_none("view_type") or "ACTIVE_ONLY"
    wanted: Filter = parse_filter(given.text_or_none("filter", 10_000) or "")
    orders: list[Order] = parse_orders(given.texts("order_by", 20)) or [
        Order(Field("attributes", "creation_time"), True),
        Order(Field("attributes", "experiment_id"), True),
    ]
    if own := _own(call):
        found = [own]
    else:
        rows = call.scope.all(call.scope.select(MlflowExperiment).limit(_MOST))
        known = {row.id: Experiment.of(row) for row in rows}
        default = Experiment(DEFAULT_ID, DEFAULT_NAME, {}, 0, int(time.time() * 1000))
        found = list(
            {
                default.id: default,
                **{found.id: found for found in experiments_of_jobs(call.scope, most=_MOST)},
                **known,
            }.values()
        )
    shown = [
        experiment
        for experiment in found
        if view in ("ALL", "all") or experiment.deleted == (view in ("DELETED_ONLY", "deleted_only"))
    ]
    chosen, token = page(shown, Experiment.field, wanted, orders, given, 1000)
    answer: dict[str, Any] = {"experiments": [experiment.answer for experiment in chosen]}
    return answer | ({"next_page_token": token} if token else {})
