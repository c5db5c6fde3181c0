"""The logged models of MLflow 3: a name, parameters and a state; their files are artifacts of their run."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import func

from weft_api.http.problems import NOT_FOUND, Problem
from weft_api.mlflow.calls import Call
from weft_api.mlflow.errors import no_model
from weft_api.mlflow.experiments import active_experiment, experiment_id
from weft_api.mlflow.filters import Field, Order, page, parse_filter
from weft_api.mlflow.runs import artifact_uri, find_run
from weft_api.mlflow.values import MOST_KEPT, Arguments, pairs, param_of, read_number, refused, shown_number, tag_of
from weft_core.store.models import MlflowModel

STATUSES = ("LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED")
_MOST = 5000
_MOST_OF_A_JOB = 10_000


def _answer(model: MlflowModel) -> dict[str, Any]:
    place = f"{artifact_uri(model.run_id)}/models/{model.id}" if model.run_id else artifact_uri(model.id)
    info = {
        "model_id": model.id,
        "experiment_id": model.experiment_id,
        "name": model.name,
        "creation_timestamp_ms": int(model.created_at.timestamp() * 1000),
        "last_updated_timestamp_ms": int(model.updated_at.timestamp() * 1000),
        "artifact_uri": place,
        "status": model.status,
        "model_type": model.model_type or "",
        "tags": pairs(model.tags),
    } | ({"source_run_id": model.run_id} if model.run_id else {})
    return {
        "info": info,
        "data": {"params": pairs(model.params), "metrics": [_metric(model, of) for of in model.metrics]},
    }


def _metric(model: MlflowModel, kept: dict[str, Any]) -> dict[str, Any]:
    dataset = kept.get("dataset")
    return {
        "key": kept["key"],
        "value": shown_number(read_number(kept["value"])),
        "step": kept["step"],
        "timestamp": kept["timestamp"],
        "run_id": kept["run_id"],
        "model_id": model.id,
    } | ({"dataset_name": dataset[0], "dataset_digest": dataset[1]} if dataset else {})


def _find(call: Call, *, write: bool = False, deleted: bool = False) -> MlflowModel:
    model_id = call.given.text("model_id")
    model = call.scope.find(MlflowModel, MlflowModel.id == model_id, lock=write)
    if model is None or (call.learner and model.job_id != call.learner.job.id) or (model.deleted_at and not deleted):
        raise no_model(model_id)
    if write:
        model.updated_at = func.now()
    return model


def _shown(call: Call, model: MlflowModel) -> dict[str, Any]:
    call.session.flush()
    call.session.refresh(model)
    return {"model": _answer(model)}


def create(call: Call) -> dict[str, Any]:
    given, learner = call.given, call.learner
    run_id = given.text_or_none("source_run_id") or (learner.job.id if learner else None)
    run = find_run(call, run_id, write=True) if run_id else None
    job = run.job if run else None
    if job is None:
        experiment = active_experiment(call.scope, given.text_or_none("experiment_id") or "0").id
    else:
        experiment = experiment_id(job.name)
        count = call.scope.select(MlflowModel, MlflowModel.job_id == job.id).with_only_columns(func.count())
        if (call.session.scalar(count) or 0) >= _MOST_OF_A_JOB:
            raise refused(f"a job can have {_MOST_OF_A_JOB} logged models")
    model_id = f"m-{uuid.uuid4().hex}"
    name = given.text_or_none("name", 500) or f"model-{model_id[2:10]}"
    if any(mark in name for mark in "/:.%\"'"):
        raise refused(
            f"Invalid model name ({name!r}) provided. Model name must be a non-empty string without / : . % \" '"
        )
    model = MlflowModel(
        id=model_id,
        job_id=job.id if job else None,
        run_id=run_id,
        experiment_id=experiment,
        name=name,
        model_type=given.text_or_none("model_type", 500),
        status="LOGGED_MODEL_PENDING",
        params=dict(param_of(of) for of in given.items("params", MOST_KEPT)),
        tags=dict(tag_of(of) for of in given.items("tags", MOST_KEPT)),
    )
    return _shown(call, call.scope.add(model))


def get(call: Call) -> dict[str, Any]:
    return {"model": _answer(_find(call, deleted=call.given.find("allow_deleted") in ("true", True)))}


def finalize(call: Call) -> dict[str, Any]:
    model, status = _find(call, write=True), call.given.text("status")
    if status not in STATUSES:
        raise refused(f"Invalid value '{status[:40]}' for parameter 'status' supplied: expected {', '.join(STATUSES)}")
    model.status = status
    return _shown(call, model)


def delete(call: Call) -> dict[str, Any]:
    """Hides the model. Its files stay with its run."""
    _find(call, write=True, deleted=True).deleted_at = func.now()
    return {}


def log_params(call: Call) -> dict[str, Any]:
    model = _find(call, write=True)
    merged = {**model.params, **dict(param_of(of) for of in call.given.items("params", MOST_KEPT))}
    if len(merged) > MOST_KEPT:
        raise refused(f"a logged model can have {MOST_KEPT} parameters")
    model.params = merged
    return {}


def set_tags(call: Call) -> dict[str, Any]:
    model = _find(call, write=True)
    merged = {**model.tags, **dict(tag_of(of) for of in call.given.items("tags", MOST_KEPT))}
    if len(merged) > MOST_KEPT:
        raise refused(f"a logged model can have {MOST_KEPT} tags")
    model.tags = merged
    return {}


def delete_tag(call: Call) -> dict[str, Any]:
    model, key = _find(call, write=True), call.given.text("tag_key")
    if key not in model.tags:
        raise Problem(NOT_FOUND, f"No tag with key {key!r} found for model with ID {model.id!r}.")
    model.tags = {name: value for name, value in model.tags.items() if name != key}
    return {}


def search(call: Call) -> dict[str, Any]:
    given = call.given
    wanted = parse_filter(given.text_or_none("filter", 10_000) or "")
    orders = [_order(of) for of in given.items("order_by", 20)] + [
        Order(Field("attributes", "creation_timestamp"), True),
        Order(Field("attributes", "model_id"), False),
    ]
    query = call.scope.select(MlflowModel, MlflowModel.deleted_at.is_(None))
    if call.learner:
        query = query.where(MlflowModel.job_id == call.learner.job.id)
    else:
        query = query.where(MlflowModel.experiment_id.in_(given.texts("experiment_ids", 1000)))
    found = call.scope.all(query.order_by(MlflowModel.created_at.desc()).limit(_MOST))
    models, token = page(found, _field, wanted, orders, given, 100)
    answer: dict[str, Any] = {"models": [_answer(model) for model in models]}
    return answer | ({"next_page_token": token} if token else {})


def _order(of: Arguments) -> Order:
    kind, dot, name = of.text("field_name", 600).partition(".")
    kinds = {"metrics": "metrics", "params": "params", "tags": "tags", "attributes": "attributes"}
    by = Field(kinds[kind], name) if dot and kind in kinds else Field("attributes", kind)
    return Order(by, of.find("ascending") is False)


def _field(model: MlflowModel, of: Field) -> Any:
    if of.kind == "params":
        return model.params.get(of.name)
    if of.kind == "tags":
        return model.tags.get(of.name)
    if of.kind == "metrics":
        return next((read_number(kept["value"]) for kept in reversed(model.metrics) if kept["key"] == of.name), None)
    known = {
        "name": model.name,
        "model_id": model.id,
        "model_type": model.model_type,
        "status": model.status.removeprefix("LOGGED_MODEL_"),
        "source_run_id": model.run_id,
        "experiment_id": model.experiment_id,
        "creation_timestamp": int(model.created_at.timestamp() * 1000),
        "creation_time": int(model.created_at.timestamp() * 1000),
        "last_updated_timestamp": int(model.updated_at.timestamp() * 1000),
    }
    if of.kind != "attributes" or of.name not in known:
        raise refused(f"Invalid attribute key '{of.name}' specified. Valid keys are {sorted(known)}")
    return known[of.name]
