"""HTTP for events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from weft_api.access.auth import Viewer
from weft_api.access.lookups import find_job
from weft_api.context import Ctx
from weft_api.events.schemas import EventPage
from weft_api.events.service import EventFollower, read_events
from weft_api.http.problems import NOT_FOUND, responses
from weft_api.streaming.following import EVENT_STREAM, LastEventId, follow, last_event_id

router = APIRouter(prefix="/api/v1", tags=["events"])


@router.get(
    "/jobs/{job_id}/events",
    summary="Read or follow a job's events",
    response_model=EventPage,
    responses={200: {"content": EVENT_STREAM}, **responses(NOT_FOUND)},
)
def get_events(
    job_id: str,
    request: Request,
    context: Ctx,
    who: Viewer,
    after: Annotated[int, Query(ge=0, le=2**62, description="Only events with a greater id.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    resume: LastEventId = None,
) -> EventPage | Response:
    """With `Accept: text/event-stream`, the answer follows the events. It sends each of them as `event: event`, and
    `event: end` once the job has ended."""
    following = "text/event-stream" in request.headers.get("accept", "")
    after_resume = last_event_id(resume) or 0
    with context.database.transaction() as session:
        scope = who.scope(session)
        find_job(scope, job_id)
        if not following:
            return EventPage(events=read_events(scope, job_id, after, limit))
    after = max(after, after_resume)
    return follow(context, who, "events", job_id, EventFollower(context, who, job_id, after).poll)
