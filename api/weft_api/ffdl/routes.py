"""HTTP for FfDL's API: models, which are Weft's jobs. Each request may carry ``version=YYYY-MM-DD``, which has no
effect. Not in the OpenAPI document: docs/from-ffdl.md lists the calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel
from sqlalchemy import tuple_

from weft_api.access.auth import Principal
from weft_api.context import Context, Ctx
from weft_api.ffdl import streams, trainingdata
from weft_api.ffdl.auth import Editor, Viewer
from weft_api.ffdl.lookup import DELETED, find_model
from weft_api.ffdl.submission import Uploaded
from weft_api.ffdl.translate import location, models_of
from weft_api.files.service import open_results, read_definition, zip_results
from weft_api.health.service import readiness
from weft_api.http.audited import audited
from weft_api.http.idempotency import KeyHeader, Once, once
from weft_api.http.problems import DATABASE_UNAVAILABLE, NOT_FOUND, Problem, invalid
from weft_api.jobs import lifecycle
from weft_api.jobs.submit import submit
from weft_api.streaming.downloads import Download
from weft_core.lifecycle.states import TERMINAL
from weft_core.manifest import parse_manifest
from weft_core.store.models import Job

router = APIRouter(include_in_schema=False)

_ZIP = "application/octet-stream"
_PAGE = 200
_MOST_LISTED = 10_000


def install(app: FastAPI) -> None:
    for served in (router, streams.router, trainingdata.router):
        app.router.routes += served.routes  # as in create_app


@router.get("/health")
def health(context: Ctx) -> PlainTextResponse:
    found = readiness(context)
    if found.status == "unavailable":
        raise Problem(DATABASE_UNAVAILABLE, "; ".join(f"{name}: {word}" for name, word in found.checks.items()))
    return PlainTextResponse("OK")


@router.post("/v1/models", openapi_extra=audited("jobs.submit", "job"))
def post_model(upload: Uploaded, context: Ctx, who: Editor, key: KeyHeader = None) -> JSONResponse:
    # Before anything goes to the store.
    manifest = parse_manifest(upload.submission.manifest, context.settings).manifest
    upload.start(context, who.project_id, manifest)
    submission = upload.submission
    asked = once(context.settings, key, "POST /v1/models", submission.digest_parts())
    job = submit(context, who, submission, asked, bring_code=upload.arrived, until=upload.until, needs_code=True).job
    where = location(job.id)
    return JSONResponse({"model_id": job.id, "location": where}, 201, {"Location": where})


@router.get("/v1/models")
def list_models(context: Ctx, who: Viewer) -> Download:
    """The newest 10,000, newest first; read page by page while they are sent."""
    pages = _pages(context, who)
    first = next(pages)  # what can't be read is an error, not half an answer

    def parts() -> Iterator[str]:
        yield '{"models":['
        yield json.dumps(first)[1:-1]
        for page in pages:
            yield "," + json.dumps(page)[1:-1]
        yield "]}"

    return Download(context, who, parts(), media_type="application/json")


def _pages(context: Context, who: Principal) -> Iterator[list[dict[str, Any]]]:
    """At least one page; all later pages have models."""
    last: Job | None = None
    left = _MOST_LISTED
    while True:
        with context.database.transaction() as session:
            scope = who.scope(session)
            query = scope.select(Job, Job.desired != DELETED, Job.kind == "train")
            if last is not None:
                query = query.where(tuple_(Job.created_at, Job.id) < (last.created_at, last.id))
            jobs = scope.all(query.order_by(Job.created_at.desc(), Job.id.desc()).limit(min(_PAGE, left)))
            page = models_of(scope, jobs)
        if page or last is None:
            yield page
        left -= len(page)
        if len(page) < _PAGE or not left:
            return
        last = jobs[-1]


@router.get("/v1/models/{model_id}")
def get_model(model_id: str, context: Ctx, who: Viewer) -> JSONResponse:
    with context.database.transaction() as session:
        scope = who.scope(session)
        return JSONResponse(models_of(scope, [find_model(scope, model_id)])[0])


class Change(BaseModel):
    status: str


@router.patch("/v1/models/{model_id}", openapi_extra=audited("jobs.halt", "job:{model_id}"))
def patch_model(model_id: str, change: Change, context: Ctx, who: Editor) -> JSONResponse:
    _require_model(context, who, model_id)
    if change.status.lower() != "halt":
        raise invalid("status", f"expected halt, found {change.status[:100]!r}")
    lifecycle.halt(context, who, model_id, None, Once(None, "PATCH /v1/models", ""))
    return JSONResponse({"model_id": model_id}, 202)


@router.delete("/v1/models/{model_id}", openapi_extra=audited("jobs.delete", "job:{model_id}"))
def delete_model(model_id: str, context: Ctx, who: Editor) -> JSONResponse:
    """From now on, the model is not found any more, even while its job is being stopped."""
    _require_model(context, who, model_id)
    lifecycle.delete(context, who, model_id)
    return JSONResponse({"model_id": model_id})


@router.get("/v1/models/{model_id}/definition")
def get_definition(model_id: str, context: Ctx, who: Viewer) -> Download:
    _require_model(context, who, model_id)
    info, pieces = read_definition(context, who, model_id)
    headers = {"Content-Length": str(info.size), **_named(f"{model_id}-definition.zip")}
    return Download(context, who, pieces, media_type=_ZIP, headers=headers)


@router.get("/v1/models/{model_id}/trained_model")
def get_trained_model(model_id: str, context: Ctx, who: Viewer) -> Download:
    with context.database.transaction() as session:
        job = find_model(who.scope(session), model_id)
        if job.state in TERMINAL and job.started_at is None:
            raise Problem(NOT_FOUND, f"the job is {job.state} and never ran: it has no trained model")
    pieces = zip_results(open_results(context, who, model_id))
    return Download(context, who, pieces, media_type=_ZIP, headers=_named(f"{model_id}-trainedmodel.zip"))


def _named(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _require_model(context: Context, who: Principal, model_id: str) -> None:
    """Raises Problem not_found."""
    with context.database.transaction() as session:
        find_model(who.scope(session), model_id)
