"""HTTP for jobs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from weft_api.access.auth import Editor, Viewer
from weft_api.access.lookups import find_job
from weft_api.context import Ctx
from weft_api.http import bodies
from weft_api.http.audited import audited, unaudited
from weft_api.http.idempotency import KeyHeader, once
from weft_api.http.paging import Cursor, Limit
from weft_api.http.parameters import Since, parse_since
from weft_api.http.problems import (
    BUDGET_USED_UP,
    CODE_MISSING,
    CONFLICT,
    IDEMPOTENCY_CONFLICT,
    INVALID_MANIFEST,
    NOT_FOUND,
    RESULTS_GONE,
    STORE_REFUSED,
    STORE_UNAVAILABLE,
    TOO_LARGE,
    invalid,
    responses,
)
from weft_api.jobs import lifecycle
from weft_api.jobs.edits import edit
from weft_api.jobs.ends import ENDS
from weft_api.jobs.ordering import NEWEST, MetricCondition, Metrics, Order, Sort
from weft_api.jobs.schemas import (
    EditBody,
    HaltBody,
    JobDetail,
    JobEnd,
    JobPage,
    JobView,
    KeepaliveAnswer,
    RerunBody,
    ValidManifest,
)
from weft_api.jobs.search import JobFilter
from weft_api.jobs.service import detail_job, list_jobs
from weft_api.jobs.submission import SUBMISSION_BODY, SUBMISSION_REFUSALS, SubmissionParam, parse_set
from weft_api.jobs.submit import Submitted, submit
from weft_api.jobs.validation import validate
from weft_core.lifecycle.states import JobState
from weft_core.manifest import Manifest, manifest_text

router = APIRouter(prefix="/api/v1", tags=["jobs"])

_MANIFEST = {"name": "hello", "framework": {"name": "pytorch", "command": "python train.py"}}


async def _yaml_body(request: Request, context: Ctx, _: Viewer) -> bytes:
    return await bodies.read(request, context.settings.limits.manifest_bytes, "a manifest")


@router.post(
    "/manifests:validate",
    summary="Check a manifest without submitting it",
    responses=responses(INVALID_MANIFEST, NOT_FOUND, TOO_LARGE, BUDGET_USED_UP),
    openapi_extra={
        **unaudited("it only checks"),
        "requestBody": {
            "required": True,
            "content": {"text/yaml": {"schema": {"type": "object"}, "example": _MANIFEST}},
        },
    },
)
def validate_manifest(
    text: Annotated[bytes, Depends(_yaml_body)],
    context: Ctx,
    who: Viewer,
    overrides: Annotated[
        list[str],
        Query(alias="set", description="A value that replaces the manifest's: key=value.", examples=[["learners=2"]]),
    ] = [],  # noqa: B006 - FastAPI copies it
    rerun_of: Annotated[
        str | None,
        Query(
            description="The id of a job. Where the manifest has no credentials for an endpoint, this job's are used.",
            max_length=100,
        ),
    ] = None,
) -> ValidManifest:
    """The answer lists all problems at once, each with its path, its line, the value found and the accepted values. As
    for a job, the secrets, models, data stores and containers that the manifest names must exist. A store that does not
    answer is not a problem, but is noted."""
    return validate(context, who, text, parse_set(overrides, "query.set"), rerun_of)


@router.post(
    "/jobs",
    status_code=201,
    summary="Submit a job",
    responses={
        201: {"headers": {"Location": {"schema": {"type": "string"}, "description": "The job's path."}}},
        **responses(*SUBMISSION_REFUSALS),
    },
    openapi_extra={
        **audited("jobs.submit", "job"),
        "requestBody": SUBMISSION_BODY,
    },
)
def submit_job(
    submission: SubmissionParam, context: Ctx, who: Editor, response: Response, key: KeyHeader = None
) -> JobView:
    """201 means that the job is durable: its code is in the store, and the job is in the database."""
    request = once(context.settings, key, "POST /jobs", submission.digest_parts())
    return _created(submit(context, who, submission, request), response)


def _created(submitted: Submitted, response: Response) -> JobView:
    response.headers["Location"] = f"/api/v1/jobs/{submitted.job.id}"
    if submitted.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return submitted.job


def _labels(values: list[str]) -> list[tuple[str, str]]:
    labels = []
    for value in values:
        key, equals, rest = value.partition("=")
        if not equals:
            raise invalid("query.label", "not of the form key=value", found=value[:100], accepted="team=vision")
        labels.append((key, rest))
    return labels


def _param(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


@router.get("/jobs", summary="List jobs")
def get_jobs(
    context: Ctx,
    who: Viewer,
    state: Annotated[
        list[JobState], Query(description="Only jobs in one of these states.", examples=[["QUEUED"]])
    ] = [],  # noqa: B006
    label: Annotated[
        list[str],
        Query(max_length=20, description="Only jobs with all of these labels: key=value.", examples=[["team=vision"]]),
    ] = [],  # noqa: B006
    q: Annotated[
        str, Query(max_length=200, description="Only jobs with this text in their name, id or description.")
    ] = "",
    since: Since = None,
    engine: Annotated[str, Query(max_length=200, description="Only jobs of this engine.", examples=["local"])] = "",
    user: Annotated[
        str, Query(max_length=200, description="Only jobs that this user submitted.", examples=["ada"])
    ] = "",
    metric: Metrics = [],  # noqa: B006
    param: Annotated[
        list[Annotated[str, Field(max_length=250)]],
        Query(
            max_length=20,
            description="A parameter, logged with MLflow, that the answer shows. `NAME=VALUE` also limits the list to "
            "the jobs that have logged exactly this value.",
            examples=[["lr=0.1", "batch"]],
        ),
    ] = [],  # noqa: B006
    pinned: Annotated[bool, Query(description="Only pinned jobs.")] = False,
    sort: Sort = NEWEST,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> JobPage:
    """The newest jobs come first, unless `sort` asks for another order."""
    conditions = [MetricCondition.parsed(text) for text in metric]
    params = [_param(text) for text in param]
    wanted = JobFilter(state, _labels(label), q, parse_since(since), conditions, engine, user, params, pinned)
    with context.database.transaction() as session:
        return list_jobs(who.scope(session), who, wanted, Order.parsed(sort), limit, cursor)


@router.get("/jobs/{job_id}", summary="Show a job", responses=responses(NOT_FOUND))
def get_job(job_id: str, context: Ctx, who: Viewer) -> JobDetail:
    with context.database.transaction() as session:
        scope = who.scope(session)
        return detail_job(scope, who, find_job(scope, job_id))


@router.get("/jobs/{job_id}/end", summary="Wait for a job's end", response_model=JobEnd, responses=responses(NOT_FOUND))
def get_end(
    job_id: str,
    request: Request,
    context: Ctx,
    who: Viewer,
    wait: Annotated[float, Query(ge=0, le=30, description="Seconds to wait for the end.")] = 0,
) -> JobEnd | Response:
    """The answer comes when the job ends, or after `wait` seconds. It may come before, with `ended` false: then
    send the request again in a moment."""
    with context.database.transaction() as session:
        job = find_job(who.scope(session), job_id)
        now = JobEnd.of(job.state, job.reason)
    if now.ended or not wait:
        return now

    # In the body, so that the request's turn ends before it waits.
    async def body() -> AsyncIterator[str]:
        began = time.monotonic()
        end = await ENDS.of(context).wait(who, job_id, now, wait)
        request.state.waited = time.monotonic() - began
        yield end.model_dump_json()

    return StreamingResponse(body(), media_type="application/json")


@router.patch(
    "/jobs/{job_id}",
    summary="Change a job's labels, description, notes or pin",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("jobs.edit", "job:{job_id}"),
)
def edit_job(job_id: str, body: EditBody, context: Ctx, who: Editor) -> JobView:
    """The job's program does not see the change. An event names its author."""
    return edit(context, who, job_id, body)


@router.post(
    "/jobs/{job_id}/halt",
    status_code=202,
    summary="Halt a job",
    responses=responses(NOT_FOUND, CONFLICT, IDEMPOTENCY_CONFLICT),
    openapi_extra=audited("jobs.halt", "job:{job_id}"),
)
def halt_job(
    job_id: str, context: Ctx, who: Editor, body: Annotated[HaltBody | None, Body()] = None, key: KeyHeader = None
) -> JobView:
    """The job's program gets SIGTERM and some time to save a checkpoint. Then it is killed."""
    grace = body.grace_seconds if body else None
    request = once(context.settings, key, f"POST /jobs/{job_id}/halt", grace)
    return lifecycle.halt(context, who, job_id, grace, request)


@router.get(
    "/jobs/{job_id}/manifest",
    summary="Get a job's manifest as YAML",
    response_class=Response,
    responses={
        200: {"content": {"text/yaml": {"schema": {"type": "object"}, "example": _MANIFEST}}},
        **responses(NOT_FOUND),
    },
)
def get_manifest(job_id: str, context: Ctx, who: Viewer) -> Response:
    """The manifest has the form in which users write manifests, without credentials. `set` of a rerun takes the paths
    of this form."""
    with context.database.transaction() as session:
        text = manifest_text(Manifest.model_validate(find_job(who.scope(session), job_id).manifest))
    return Response(text, media_type="text/yaml")


@router.put(
    "/jobs/{job_id}/keepalive",
    summary="Report that a job's client is alive",
    responses=responses(NOT_FOUND, CONFLICT),
    openapi_extra=unaudited("a sign of life of a program, every few seconds"),
)
def keep_job_alive(job_id: str, context: Ctx, who: Editor) -> KeepaliveAnswer:
    """A job that was submitted with `keepalive` is halted when this call does not come in time."""
    return lifecycle.keep_alive(context, who, job_id)


@router.post(
    "/jobs/{job_id}/resume",
    status_code=202,
    summary="Resume a halted or failed job from its last checkpoint",
    responses=responses(NOT_FOUND, CONFLICT, IDEMPOTENCY_CONFLICT),
    openapi_extra=audited("jobs.resume", "job:{job_id}"),
)
def resume_job(job_id: str, context: Ctx, who: Editor, key: KeyHeader = None) -> JobView:
    return lifecycle.resume(context, who, job_id, once(context.settings, key, f"POST /jobs/{job_id}/resume", None))


@router.post(
    "/jobs/{job_id}/rerun",
    status_code=201,
    summary="Submit a job again, as a new job",
    responses=responses(
        NOT_FOUND,
        INVALID_MANIFEST,
        CODE_MISSING,
        CONFLICT,
        IDEMPOTENCY_CONFLICT,
        RESULTS_GONE,
        STORE_REFUSED,
        STORE_UNAVAILABLE,
        BUDGET_USED_UP,
    ),
    openapi_extra=audited("jobs.rerun", "job:{job_id}"),
)
def rerun_job(
    job_id: str,
    context: Ctx,
    who: Editor,
    response: Response,
    body: Annotated[RerunBody | None, Body()] = None,
    key: KeyHeader = None,
) -> JobView:
    """The new job has the manifest, the code and the credentials of the old job. `set` changes values of the manifest,
    and `code_sha256` names other code. With `from_checkpoint`, the first attempt of the new job finds a checkpoint of
    the old job in CHECKPOINT_DIR."""
    asked = body or RerunBody()
    request = once(context.settings, key, f"POST /jobs/{job_id}/rerun", asked.model_dump())
    return _created(lifecycle.rerun(context, who, job_id, asked, request), response)


@router.delete(
    "/jobs/{job_id}",
    status_code=202,
    summary="Delete a job",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("jobs.delete", "job:{job_id}"),
)
def delete_job(job_id: str, context: Ctx, who: Editor) -> JobView:
    """A running job is stopped first."""
    return lifecycle.delete(context, who, job_id)
