"""HTTP for MLflow's tracking API. Not in the OpenAPI document: docs/mlflow.md lists the calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from weft_api.access.auth import Bearer
from weft_api.access.turns import TakesTurn
from weft_api.context import Context, Ctx
from weft_api.http import bodies
from weft_api.http.audited import about, audited, unaudited
from weft_api.http.bodies import MIB, allow, parse_json
from weft_api.http.problems import NOT_SUPPORTED, Problem
from weft_api.http.spool import Spooled, spool_body
from weft_api.metrics.series import snapshot
from weft_api.mlflow import artifacts, experiment_calls, history, model_calls, run_calls, search
from weft_api.mlflow.callers import (
    Caller,
    LearnerToken,
    caller_of,
    find_learner,
    read_token,
    require_editor,
    said,
    user_of,
)
from weft_api.mlflow.calls import Call
from weft_api.mlflow.ingest import accept
from weft_api.mlflow.values import Arguments, storable
from weft_api.streaming.downloads import Download

router = APIRouter(include_in_schema=False)

_PREFIX = "/api/2.0/mlflow"
_FILES = "/api/2.0/mlflow-artifacts/artifacts"
_LARGEST_CALL = 4 * MIB
"""An input's schema may have 1 MiB, in JSON's escapes."""
_LISTS = ("order_by", "experiment_ids")
_LOGGED = unaudited("what a training logs, as often as it likes")
_OBJECTS = {"model_id": "logged-model", "run_id": "run", "experiment_id": "experiment"}


@dataclass(frozen=True)
class Endpoint:
    work: Callable[[Call], dict[str, Any]]
    writes: bool = True
    logs: bool = False
    """Whether it stores what a program logs, as often as it likes."""
    snapshot: bool = False
    """Whether all that it reads must be as of one moment."""


_ENDPOINTS: dict[tuple[str, str], Endpoint] = {
    ("GET", "experiments/get"): Endpoint(experiment_calls.get, writes=False),
    ("GET", "experiments/get-by-name"): Endpoint(experiment_calls.get_by_name, writes=False),
    ("POST", "experiments/search"): Endpoint(experiment_calls.search, writes=False),
    ("GET", "experiments/search"): Endpoint(experiment_calls.search, writes=False),
    ("POST", "experiments/create"): Endpoint(experiment_calls.create),
    ("POST", "experiments/update"): Endpoint(experiment_calls.update),
    ("POST", "experiments/delete"): Endpoint(experiment_calls.delete),
    ("POST", "experiments/restore"): Endpoint(experiment_calls.restore),
    ("POST", "experiments/set-experiment-tag"): Endpoint(experiment_calls.set_tag),
    ("POST", "experiments/delete-experiment-tag"): Endpoint(experiment_calls.delete_tag),
    ("GET", "runs/get"): Endpoint(run_calls.get, writes=False, snapshot=True),
    ("POST", "runs/search"): Endpoint(search.search, writes=False, snapshot=True),
    ("POST", "runs/create"): Endpoint(run_calls.create),
    ("POST", "runs/update"): Endpoint(run_calls.update),
    ("POST", "runs/delete"): Endpoint(run_calls.delete),
    ("POST", "runs/restore"): Endpoint(run_calls.restore),
    ("POST", "runs/log-parameter"): Endpoint(run_calls.log_parameter, logs=True),
    ("POST", "runs/set-tag"): Endpoint(run_calls.set_tag, logs=True),
    ("POST", "runs/delete-tag"): Endpoint(run_calls.delete_tag),
    ("POST", "runs/log-model"): Endpoint(run_calls.log_model, logs=True),
    ("POST", "runs/log-inputs"): Endpoint(run_calls.log_inputs, logs=True),
    ("POST", "runs/outputs"): Endpoint(run_calls.log_outputs, logs=True),
    ("GET", "metrics/get-history"): Endpoint(history.get_history, writes=False, snapshot=True),
    ("POST", "logged-models"): Endpoint(model_calls.create),
    ("POST", "logged-models/search"): Endpoint(model_calls.search, writes=False),
    ("GET", "logged-models/{model_id}"): Endpoint(model_calls.get, writes=False),
    ("PATCH", "logged-models/{model_id}"): Endpoint(model_calls.finalize, logs=True),
    ("DELETE", "logged-models/{model_id}"): Endpoint(model_calls.delete),
    ("POST", "logged-models/{model_id}/params"): Endpoint(model_calls.log_params, logs=True),
    ("PATCH", "logged-models/{model_id}/tags"): Endpoint(model_calls.set_tags, logs=True),
    ("DELETE", "logged-models/{model_id}/tags/{tag_key:path}"): Endpoint(model_calls.delete_tag),
}
SUPPORTED = "experiments, runs, metrics/get-history, artifacts and logged-models"


async def _body(request: Request) -> Any:
    if request.method == "GET":
        query = request.query_params
        data: Any = {name: query.getlist(name) if name in _LISTS else query[name] for name in query}
    else:
        body = await bodies.read(request, _LARGEST_CALL, "a call of MLflow's API")
        data = parse_json(body) if body else {}
    if isinstance(data, dict):
        data |= request.path_params
    return storable(data)


def _known(context: Context, bearer: Bearer) -> LearnerToken | Caller:
    """Before the call's own transaction, or a request would hold two connections to the database. Raises Problem."""
    token = read_token(context, bearer)
    return token if isinstance(token, LearnerToken) else caller_of(user_of(context, token))


def _call(context: Context, session: Session, known: LearnerToken | Caller, given: Arguments, *, writes: bool) -> Call:
    """Raises Problem."""
    caller = known if isinstance(known, Caller) else find_learner(session, known, write=writes)
    if writes:
        require_editor(caller)
    return Call(context, session, caller, given)


def _serve(method: str, path: str, endpoint: Endpoint) -> None:
    def handle(body: Annotated[Any, Depends(_body)], turn: TakesTurn, context: Ctx, bearer: Bearer) -> JSONResponse:
        known = _known(context, bearer)
        given = Arguments(said(context, known, body))
        for name, kind in _OBJECTS.items():
            if endpoint.writes and (object_id := given.text_or_none(name)):
                about(kind, object_id)
                break
        with context.database.transaction() as session:
            if endpoint.snapshot:
                snapshot(session)
            call = _call(context, session, known, given, writes=endpoint.writes)
            turn.accepted(call.caller.identity)
            return JSONResponse(endpoint.work(call))

    router.add_api_route(f"{_PREFIX}/{path}", handle, methods=[method], openapi_extra=_declared(path, endpoint))


def _declared(path: str, endpoint: Endpoint) -> dict[str, Any]:
    if not endpoint.writes:
        return unaudited("it only reads")
    return _LOGGED if endpoint.logs else audited(f"mlflow.{path.partition('/')[0]}.{endpoint.work.__name__}")


async def _batch(request: Request) -> bytes:
    return await bodies.read(request, _LARGEST_CALL, "a batch of MLflow's metrics")


@router.post(f"{_PREFIX}/runs/log-metric", openapi_extra=_LOGGED)
async def log_metric(body: Annotated[bytes, Depends(_batch)], context: Ctx, bearer: Bearer) -> JSONResponse:
    await accept(context, bearer, body, single=True)
    return JSONResponse({})


@router.post(f"{_PREFIX}/runs/log-batch", openapi_extra=_LOGGED)
async def log_batch(body: Annotated[bytes, Depends(_batch)], context: Ctx, bearer: Bearer) -> JSONResponse:
    await accept(context, bearer, body, single=False)
    return JSONResponse({})


# Behind these two: routes are tried in the order in which they are added.
for (_method, _path), _endpoint in _ENDPOINTS.items():
    _serve(_method, _path, _endpoint)


# --- artifacts ---------------------------------------------------------------------------------------------------


def _folder(context: Context, known: LearnerToken | Caller, address: str, *, write: bool = False) -> artifacts.Folder:
    with context.database.transaction() as session:
        call = _call(context, session, known, Arguments({}), writes=write)
        return artifacts.open_folder(call, address, write=write)


@router.get(f"{_PREFIX}/artifacts/list")
def list_artifacts(body: Annotated[Any, Depends(_body)], context: Ctx, bearer: Bearer) -> JSONResponse:
    given = Arguments(body)
    run_id = given.run_id()
    folder = _folder(context, _known(context, bearer), f"{run_id}/{given.text_or_none('path', 1000) or ''}")
    return JSONResponse(artifacts.list_of_run(folder, run_id))


@router.get(f"{_PREFIX}/logged-models/{{model_id}}/artifacts/directories")
def list_of_model(body: Annotated[Any, Depends(_body)], context: Ctx, bearer: Bearer) -> JSONResponse:
    given = Arguments(body)
    known = _known(context, bearer)
    with context.database.transaction() as session:
        call = _call(context, session, known, given, writes=False)
        place = model_calls.get(call)["model"]["info"]["artifact_uri"].partition(":/")[2]
        below = given.text_or_none("artifact_directory_path", 1000) or ""
        folder = artifacts.open_folder(call, f"{place}/{below}")
    return JSONResponse({"root_uri": f"mlflow-artifacts:/{place}", "files": artifacts.entries(folder)})


@router.get(_FILES)
def list_files(body: Annotated[Any, Depends(_body)], context: Ctx, bearer: Bearer) -> JSONResponse:
    given = Arguments(body)
    folder = _folder(context, _known(context, bearer), given.text("path", 1000))
    return JSONResponse({"files": artifacts.entries(folder)})


@router.get(_FILES + "/{path:path}")
def download(path: str, context: Ctx, bearer: Bearer) -> Response:
    known = _known(context, bearer)
    info, pieces = artifacts.read(_folder(context, known, path))
    headers = {"Content-Length": str(info.size), "Content-Disposition": "attachment"}
    media = "application/octet-stream"
    if isinstance(known, Caller) and known.who is not None:
        return Download(context, known.who, pieces, media, headers)
    return StreamingResponse(pieces, media_type=media, headers=headers)


def _check_writer(context: Context, bearer: Bearer) -> None:
    known = _known(context, bearer)
    with context.database.transaction() as session:
        _call(context, session, known, Arguments({}), writes=True)


def _store(context: Context, bearer: Bearer, address: str, file: Spooled) -> None:
    known = _known(context, bearer)
    with context.database.transaction() as session:
        call = _call(context, session, known, Arguments({}), writes=True)
        folder = artifacts.reserve(call, address, file.size)
    artifacts.put(folder, file)


@router.put(_FILES + "/{path:path}", openapi_extra=audited("mlflow.artifacts.upload", "artifact:{path}"))
async def upload(path: str, request: Request, context: Ctx, bearer: Bearer) -> JSONResponse:
    # Before the body is written to this machine's disk.
    await run_in_threadpool(_check_writer, context, bearer)
    allow(request, context.settings.limits.mlflow_artifact_bytes, "an artifact")
    file = await spool_body(request)
    try:
        await run_in_threadpool(_store, context, bearer, path, file)
    finally:
        file.path.unlink(missing_ok=True)
    return JSONResponse({})


@router.delete(_FILES + "/{path:path}", openapi_extra=audited("mlflow.artifacts.delete", "artifact:{path}"))
def delete_artifacts(path: str, context: Ctx, bearer: Bearer) -> JSONResponse:
    artifacts.delete(_folder(context, _known(context, bearer), path, write=True))
    return JSONResponse({})


@router.post("/api/2.0/mlflow-artifacts/mpu/{path:path}", openapi_extra=unaudited("it is always refused"))
def multipart(path: str) -> None:
    """The client then sends the file in one piece."""
    raise Problem(NOT_SUPPORTED, "multipart uploads are not supported: send the artifact with PUT")


# --- everything else ---------------------------------------------------------------------------------------------


def unknown(path: str) -> JSONResponse:
    message = f"Weft does not serve {path[:100]!r} of MLflow's API; it serves {SUPPORTED} (docs/mlflow.md)"
    return JSONResponse({"error_code": "ENDPOINT_NOT_FOUND", "message": message}, 404)


for _prefix in ("/api/2.0", "/api/3.0"):
    router.add_api_route(
        _prefix + "/{path:path}",
        unknown,
        methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        openapi_extra=unaudited("nothing is served there"),
    )
