"""HTTP for logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from sse_starlette import EventSourceResponse

from weft_api.auth import Viewer
from weft_api.context import Ctx
from weft_api.following import LastEventId, follow, last_event_id
from weft_api.jobs.service import find_job
from weft_api.logs.chunks import ChunkReader
from weft_api.logs.follow import LogFollower
from weft_api.logs.read import LogFilter, read_page, tail_start
from weft_api.logs.schemas import AttemptNumber, From, LearnerId, LogPage, Tail, Text
from weft_api.problems import NOT_FOUND, responses
from weft_api.since import Since, parse_since
from weft_core.lifecycle import TERMINAL

router = APIRouter(prefix="/api/v1", tags=["logs"], responses=responses(NOT_FOUND))

_PAGE = 2000


@router.get("/jobs/{job_id}/logs", summary="Read a part of a job's log")
def get_logs(
    job_id: str,
    context: Ctx,
    who: Viewer,
    learner: LearnerId = None,
    attempt: AttemptNumber = None,
    since: Since = None,
    tail: Tail = None,
    start: From = None,
    q: Text = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> LogPage:
    """From line `from` on (or the last `tail` lines); `next` is where to go on, whatever the filters."""
    wanted = LogFilter(learner, attempt, parse_since(since), q)
    with context.database.transaction() as session:
        ended = find_job(who.scope(session), job_id).state in TERMINAL
    reader = ChunkReader(context, who, job_id)
    first = _first(start, tail_start(reader, wanted, tail) if tail is not None else 0)
    page = read_page(reader, wanted, first, limit)
    return LogPage(lines=page.lines, next=page.next, end=ended and not page.more)


def _first(start: int | None, tail: int) -> int:
    return tail if start is None else max(start, tail)


@router.get(
    "/jobs/{job_id}/logs/follow",
    summary="Follow a job's log (server-sent events)",
    response_class=EventSourceResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
def follow_logs(
    job_id: str,
    context: Ctx,
    who: Viewer,
    learner: LearnerId = None,
    attempt: AttemptNumber = None,
    tail: Tail = None,
    start: From = None,
    resume: LastEventId = None,
) -> EventSourceResponse:
    """`event: line` (its id is the line's number), `event: state` when the state or its reason changes, and
    `event: end` once the job has ended and every line was sent. A retry's lines follow in the same stream."""
    wanted = LogFilter(learner, attempt)
    after = last_event_id(resume)
    with context.database.transaction() as session:
        find_job(who.scope(session), job_id)
    if after is not None:
        first = after + 1
    else:
        reader = ChunkReader(context, who, job_id)
        first = _first(start, tail_start(reader, wanted, tail) if tail is not None else 0)
    return follow(context, who, "logs", job_id, LogFollower(context, who, job_id, wanted, first).look)


@router.get(
    "/jobs/{job_id}/logs/download",
    summary="Download a job's log as text",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def download_logs(
    job_id: str, context: Ctx, who: Viewer, learner: LearnerId = None, attempt: AttemptNumber = None
) -> StreamingResponse:
    """With several learners and no `learner`, each line begins with its learner: `learner 2 | …`."""
    with context.database.transaction() as session:
        named = learner is None and find_job(who.scope(session), job_id).learners > 1
    name = f"{job_id}.log" if learner is None else f"{job_id}-learner-{learner}.log"
    return StreamingResponse(
        _text(ChunkReader(context, who, job_id), LogFilter(learner, attempt), named),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _text(reader: ChunkReader, wanted: LogFilter, named: bool) -> Iterator[str]:
    position, more = 0, True
    while more:
        page = read_page(reader, wanted, position, _PAGE)
        position, more = page.next, page.more
        yield "".join(f"learner {line.learner} | {line.text}\n" if named else f"{line.text}\n" for line in page.lines)
