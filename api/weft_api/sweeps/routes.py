"""HTTP for sweeps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Response

from weft_api.access.auth import Editor, Viewer
from weft_api.context import Ctx
from weft_api.http.audited import audited
from weft_api.http.idempotency import KeyHeader, once
from weft_api.http.paging import Cursor, Limit
from weft_api.http.problems import (
    CONFLICT,
    IDEMPOTENCY_CONFLICT,
    INVALID_MANIFEST,
    NOT_FOUND,
    responses,
)
from weft_api.jobs.submission import SUBMISSION_BODY, SUBMISSION_REFUSALS, SubmissionParam
from weft_api.sweeps import deleting, service
from weft_api.sweeps.importance import show_importance
from weft_api.sweeps.schemas import (
    AskBody,
    SweepDetail,
    SweepImportance,
    SweepPage,
    SweepView,
    TellBody,
    TrialPage,
    TrialView,
)
from weft_core.manifest import manifest_text

router = APIRouter(prefix="/api/v1/sweeps", tags=["sweeps"])

_MANIFEST: dict[str, Any] = {
    "name": "search",
    "framework": {"name": "pytorch", "command": "python train.py --lr ${sweep.lr}"},
    "sweep": {"parameters": {"lr": {"log": [0.0001, 0.1]}}, "metric": "val/accuracy", "trials": 40, "parallel": 4},
}
Number = Annotated[int, Path(ge=0, le=1_000_000, description="The number of the trial, from 0.", examples=[7])]
_STEERED = responses(NOT_FOUND, CONFLICT, IDEMPOTENCY_CONFLICT)


@router.post(
    "",
    status_code=201,
    summary="Submit a sweep",
    responses={
        201: {"headers": {"Location": {"schema": {"type": "string"}, "description": "The sweep's path."}}},
        **responses(NOT_FOUND, *SUBMISSION_REFUSALS),
    },
    openapi_extra={
        **audited("sweeps.submit", "sweep"),
        "requestBody": SUBMISSION_BODY,
    },
)
def submit_sweep(
    submission: SubmissionParam, context: Ctx, who: Editor, response: Response, key: KeyHeader = None
) -> SweepView:
    """The body is that of a job; the manifest has the key `sweep`. 201 means that the sweep is durable. Its trials are
    ordinary jobs with the label `sweep`."""
    request = once(context.settings, key, "POST /sweeps", submission.digest_parts())
    view, replayed = service.submit(context, who, submission, request)
    response.headers["Location"] = f"/api/v1/sweeps/{view.id}"
    if replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return view


@router.get("", summary="List sweeps, newest first")
def get_sweeps(context: Ctx, who: Viewer, limit: Limit = 50, cursor: Cursor = None) -> SweepPage:
    with context.database.transaction() as session:
        return service.list_sweeps(who.scope(session), limit, cursor)


@router.get("/{sweep_id}", summary="Show a sweep", responses=responses(NOT_FOUND))
def get_sweep(sweep_id: str, context: Ctx, who: Viewer) -> SweepDetail:
    with context.database.transaction() as session:
        return service.show_sweep(who.scope(session), sweep_id)


@router.get(
    "/{sweep_id}/manifest",
    summary="Get a sweep's manifest as YAML",
    response_class=Response,
    responses={
        200: {"content": {"text/yaml": {"schema": {"type": "object"}, "example": _MANIFEST}}},
        **responses(NOT_FOUND),
    },
)
def get_manifest(sweep_id: str, context: Ctx, who: Viewer) -> Response:
    """The manifest has the form in which users write manifests, without credentials."""
    with context.database.transaction() as session:
        text = manifest_text(service.manifest_of(who.scope(session), sweep_id))
    return Response(text, media_type="text/yaml")


@router.get(
    "/{sweep_id}/importance", summary="Show how much each parameter of a sweep matters", responses=responses(NOT_FOUND)
)
def get_importance(sweep_id: str, context: Ctx, who: Viewer) -> SweepImportance:
    """The importance of a parameter is its share in how good the best tenth of the trials is."""
    return show_importance(context, who, sweep_id)


@router.get("/{sweep_id}/trials", summary="List a sweep's trials", responses=responses(NOT_FOUND))
def get_trials(
    sweep_id: str,
    context: Ctx,
    who: Viewer,
    sort: Annotated[
        Literal["number", "best"],
        Query(description="`number`: in the order of their beginning. `best`: those with a value, the best first."),
    ] = "number",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> TrialPage:
    with context.database.transaction() as session:
        return service.list_trials(who.scope(session), sweep_id, sort == "best", limit, cursor)


@router.post(
    "/{sweep_id}/pause",
    summary="Begin no new trials",
    responses=_STEERED,
    openapi_extra=audited("sweeps.pause", "sweep:{sweep_id}"),
)
def pause_sweep(sweep_id: str, context: Ctx, who: Editor, key: KeyHeader = None) -> SweepView:
    """Trials that have begun go on."""
    return service.pause(context, who, sweep_id, once(context.settings, key, f"POST /sweeps/{sweep_id}/pause", None))


@router.post(
    "/{sweep_id}/resume",
    summary="Go on with a paused sweep",
    responses=_STEERED,
    openapi_extra=audited("sweeps.resume", "sweep:{sweep_id}"),
)
def resume_sweep(sweep_id: str, context: Ctx, who: Editor, key: KeyHeader = None) -> SweepView:
    return service.resume(context, who, sweep_id, once(context.settings, key, f"POST /sweeps/{sweep_id}/resume", None))


@router.post(
    "/{sweep_id}/stop",
    status_code=202,
    summary="End a sweep",
    responses=_STEERED,
    openapi_extra=audited("sweeps.stop", "sweep:{sweep_id}"),
)
def stop_sweep(sweep_id: str, context: Ctx, who: Editor, key: KeyHeader = None) -> SweepView:
    """No new trial begins, and those under way are halted. Then the sweep is STOPPED."""
    return service.stop(context, who, sweep_id, once(context.settings, key, f"POST /sweeps/{sweep_id}/stop", None))


@router.delete(
    "/{sweep_id}",
    status_code=204,
    summary="Delete a sweep that has ended",
    responses=responses(NOT_FOUND, CONFLICT),
    openapi_extra=audited("sweeps.delete", "sweep:{sweep_id}"),
)
def delete_sweep(
    sweep_id: str,
    context: Ctx,
    who: Editor,
    jobs: Annotated[bool, Query(description="Whether the jobs of its trials are deleted, too.")] = False,
) -> None:
    """Without `jobs`, the jobs of its trials stay, with their labels."""
    deleting.delete(context, who, sweep_id, jobs)


@router.post(
    "/{sweep_id}/trials",
    status_code=201,
    summary="Ask for a trial",
    responses=responses(NOT_FOUND, CONFLICT, INVALID_MANIFEST, IDEMPOTENCY_CONFLICT),
    openapi_extra=audited("sweeps.ask", "sweep:{sweep_id}"),
)
def ask_trial(
    sweep_id: str, context: Ctx, who: Editor, body: Annotated[AskBody | None, Body()] = None, key: KeyHeader = None
) -> TrialView:
    """For a program that searches itself (`search: manual`), or that runs trials elsewhere (`run: false`). The trial
    counts among the `trials` of the sweep."""
    asked = body or AskBody()
    request = once(context.settings, key, f"POST /sweeps/{sweep_id}/trials", asked.model_dump())
    return service.ask(context, who, sweep_id, asked, request)


@router.put(
    "/{sweep_id}/trials/{number}/result",
    summary="Tell the value of a trial that runs elsewhere",
    responses=responses(NOT_FOUND, CONFLICT),
    openapi_extra=audited("sweeps.tell", "sweep:{sweep_id}"),
)
def tell_trial(sweep_id: str, number: Number, context: Ctx, who: Editor, body: TellBody) -> TrialView:
    """Only for a trial that was asked for with `run: false`. The same result may be told again."""
    return service.tell(context, who, sweep_id, number, body)
