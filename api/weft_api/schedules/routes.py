"""HTTP for schedules."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from weft_api.access.auth import Editor, Viewer
from weft_api.context import Ctx
from weft_api.http.audited import audited
from weft_api.http.idempotency import KeyHeader, once
from weft_api.http.paging import Cursor, Limit
from weft_api.http.problems import CONFLICT, IDEMPOTENCY_CONFLICT, NOT_FOUND, responses
from weft_api.jobs.submission import SUBMISSION_BODY, SUBMISSION_REFUSALS, SubmissionParam
from weft_api.schedules import service
from weft_api.schedules.schemas import ScheduleDetail, SchedulePage, ScheduleView, StartPage, StartView
from weft_core.manifest import manifest_text

router = APIRouter(prefix="/api/v1/schedules", tags=["schedules"])

_MANIFEST: dict[str, Any] = {
    "name": "nightly",
    "framework": {"name": "pytorch", "command": "python train.py"},
    "schedule": {"cron": "0 3 * * *", "timezone": "Europe/Berlin", "overlap": "skip"},
}
_STEERED = responses(NOT_FOUND, CONFLICT, IDEMPOTENCY_CONFLICT)


@router.post(
    "",
    status_code=201,
    summary="Create a schedule",
    responses={
        201: {"headers": {"Location": {"schema": {"type": "string"}, "description": "The schedule's path."}}},
        **responses(NOT_FOUND, CONFLICT, *SUBMISSION_REFUSALS),
    },
    openapi_extra={**audited("schedules.create", "schedule"), "requestBody": SUBMISSION_BODY},
)
def create_schedule(
    submission: SubmissionParam, context: Ctx, who: Editor, response: Response, key: KeyHeader = None
) -> ScheduleView:
    """The body is that of a job; the manifest has the key `schedule`, `on`, or both. Its jobs are ordinary jobs of the
    caller with the label `schedule`."""
    request = once(context.settings, key, "POST /schedules", submission.digest_parts())
    view, replayed = service.create(context, who, submission, request)
    response.headers["Location"] = f"/api/v1/schedules/{view.id}"
    if replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return view


@router.get("", summary="List schedules, newest first")
def get_schedules(context: Ctx, who: Viewer, limit: Limit = 50, cursor: Cursor = None) -> SchedulePage:
    with context.database.transaction() as session:
        return service.list_schedules(who.scope(session), limit, cursor)


@router.get("/{schedule_id}", summary="Show a schedule", responses=responses(NOT_FOUND))
def get_schedule(schedule_id: str, context: Ctx, who: Viewer) -> ScheduleDetail:
    with context.database.transaction() as session:
        return service.show_schedule(who.scope(session), schedule_id)


@router.get(
    "/{schedule_id}/manifest",
    summary="Get a schedule's manifest as YAML",
    response_class=Response,
    responses={
        200: {"content": {"text/yaml": {"schema": {"type": "object"}, "example": _MANIFEST}}},
        **responses(NOT_FOUND),
    },
)
def get_schedule_manifest(schedule_id: str, context: Ctx, who: Viewer) -> Response:
    """The manifest has the form in which users write manifests, without credentials."""
    with context.database.transaction() as session:
        text = manifest_text(service.manifest_of(who.scope(session), schedule_id))
    return Response(text, media_type="text/yaml")


@router.get(
    "/{schedule_id}/starts", summary="List the starts of a schedule, newest first", responses=responses(NOT_FOUND)
)
def get_starts(schedule_id: str, context: Ctx, who: Viewer, limit: Limit = 50, cursor: Cursor = None) -> StartPage:
    """The newest 1000 are kept."""
    with context.database.transaction() as session:
        return service.list_starts(who.scope(session), schedule_id, limit, cursor)


@router.post(
    "/{schedule_id}/starts",
    status_code=201,
    summary="Start a job of a schedule now",
    responses=_STEERED,
    openapi_extra=audited("schedules.start", "schedule:{schedule_id}"),
)
def start_job(schedule_id: str, context: Ctx, who: Editor, key: KeyHeader = None) -> StartView:
    """The job starts whether the schedule is paused or not, and beside earlier jobs of the schedule. With `on`, it gets
    the version that the stage is at."""
    request = once(context.settings, key, f"POST /schedules/{schedule_id}/starts", None)
    return service.start(context, who, schedule_id, request)


@router.post(
    "/{schedule_id}/pause",
    summary="Let a schedule start no jobs",
    responses=_STEERED,
    openapi_extra=audited("schedules.pause", "schedule:{schedule_id}"),
)
def pause_schedule(schedule_id: str, context: Ctx, who: Editor, key: KeyHeader = None) -> ScheduleView:
    """Its jobs go on."""
    request = once(context.settings, key, f"POST /schedules/{schedule_id}/pause", None)
    return service.pause(context, who, schedule_id, request)


@router.post(
    "/{schedule_id}/resume",
    summary="Let a paused schedule start jobs again",
    responses=_STEERED,
    openapi_extra=audited("schedules.resume", "schedule:{schedule_id}"),
)
def resume_schedule(schedule_id: str, context: Ctx, who: Editor, key: KeyHeader = None) -> ScheduleView:
    """The times and the promotions of the pause start no jobs."""
    request = once(context.settings, key, f"POST /schedules/{schedule_id}/resume", None)
    return service.resume(context, who, schedule_id, request)


@router.delete(
    "/{schedule_id}",
    status_code=204,
    summary="Delete a schedule",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("schedules.delete", "schedule:{schedule_id}"),
)
def delete_schedule(schedule_id: str, context: Ctx, who: Editor) -> None:
    """Its jobs stay."""
    service.delete(context, who, schedule_id)
