"""HTTP for logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

import anyio
import anyio.from_thread
from fastapi import APIRouter, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.concurrency import run_in_threadpool
from sse_starlette import EventSourceResponse

from weft_api.access.auth import Principal, Viewer
from weft_api.access.lookups import find_job
from weft_api.context import Context, Ctx
from weft_api.http.parameters import At, AttemptNumber, LearnerId, Since, parse_since
from weft_api.http.patterns import ACCEPTED, BadPattern, Pattern
from weft_api.http.problems import NOT_FOUND, invalid, responses
from weft_api.logs.chunks import ChunkReader
from weft_api.logs.follow import Frame, LogFollower
from weft_api.logs.read import LogFilter, read_before, read_page, tail_start, text_of
from weft_api.logs.schemas import (
    Before,
    From,
    LogPage,
    SearchPage,
    Sought,
    Tail,
    Text,
)
from weft_api.logs.search import search
from weft_api.streaming.downloads import Download
from weft_api.streaming.following import EVENT_STREAM, LastEventId, last_event_id, streamed
from weft_core.lifecycle.states import TERMINAL

router = APIRouter(prefix="/api/v1", tags=["logs"], responses=responses(NOT_FOUND))

_POLICY = 1008
"""The code that closes the WebSocket of a user who is no longer signed in."""


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
    before: Before = None,
    at: At = None,
    q: Text = "",
    limit: Annotated[int, Query(ge=1, le=10_000, description="Lines per page.")] = 1000,
) -> LogPage:
    """The page starts at line `from`, at the last `tail` lines, or at the time `at`. To go on, send `next` as `from`;
    this holds with any filters. To read upwards, send `previous` as `before`."""
    wanted = LogFilter(learner, attempt, parse_since(since), q)
    time = parse_since(at, "at")
    if before is not None and (start, tail, time) != (None, None, None):
        raise invalid("query.before", "goes with none of from, tail and at: they say where to begin, too")
    with context.database.transaction() as session:
        job = find_job(who.scope(session), job_id)
        ended, removed = job.state in TERMINAL, (job.removed or {}).get("logs", {}).get("lines", 0)
    reader = ChunkReader(context, who, job_id)
    if before is not None:
        page = read_before(reader, wanted, before, limit)
    else:
        begins, end = [start or 0], reader.end()
        if tail is not None:
            begins.append(tail_start(reader, wanted, tail, end))
        if time is not None:
            begins.append(reader.at(time, wanted))
        page = read_page(reader, wanted, max(begins), limit, end)
    return LogPage(
        lines=page.lines,
        first=page.lines[0].n if page.lines else None,
        next=page.next,
        previous=page.previous,
        total=page.total,
        removed=removed,
        end=ended and not page.more,
    )


@router.get("/jobs/{job_id}/logs/search", summary="Search a job's log")
def search_logs(
    job_id: str,
    request: Request,
    context: Ctx,
    who: Viewer,
    q: Sought,
    regex: Annotated[bool, Query(description="`q` is a regular expression in the syntax of RE2.")] = False,
    case: Annotated[bool, Query(description="Distinguish upper and lower case.")] = False,
    around: Annotated[
        int, Query(alias="context", ge=0, le=20, description="Number of lines to show before and after each match.")
    ] = 0,
    start: From = None,
    learner: LearnerId = None,
    attempt: AttemptNumber = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Matches per call.")] = 100,
) -> SearchPage:
    """The answer has the matching lines, in order. A call searches up to 64 MiB, or for a second, and may find nothing
    in that part. Repeat the call with `from` = `next` until `end` is true. To end the search early, stop calling.

    RE2 has no look-around and no back-references. In return, no pattern can hold up the server.
    """
    try:
        pattern = Pattern(q, regex=regex, case=case)
    except BadPattern as error:
        raise invalid("query.q", str(error), found=q, accepted=ACCEPTED) from None
    with context.database.transaction() as session:
        find_job(who.scope(session), job_id)
    found = search(
        ChunkReader(context, who, job_id),
        LogFilter(learner, attempt),
        pattern,
        start or 0,
        context=around,
        limit=limit,
        cancelled=lambda: anyio.from_thread.run(request.is_disconnected),
    )
    return SearchPage(matches=found.matches, next=found.next, end=not found.more)


def _follower(
    context: Context,
    who: Principal,
    job_id: str,
    wanted: LogFilter,
    tail: int | None,
    start: int | None,
    after: int | None = None,
) -> LogFollower:
    with context.database.transaction() as session:
        find_job(who.scope(session), job_id)
    first = start or 0
    if after is not None:
        first = after + 1
    elif tail is not None:
        reader = ChunkReader(context, who, job_id)
        first = max(first, tail_start(reader, wanted, tail, reader.end()))
    return LogFollower(context, who, job_id, wanted, first)


@router.get(
    "/jobs/{job_id}/logs/follow",
    summary="Follow a job's log (server-sent events)",
    response_class=EventSourceResponse,
    responses={200: {"content": EVENT_STREAM}},
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
    """The server sends `event: line` for each line, with the line's number as id. It sends `event: state` when the
    state or its reason changes, and `event: end` once the job has ended and all lines are sent. The lines of a retry
    follow in the same stream.

    A client that reads too slowly gets `event: gap` with `{from, to, lines}`: the server has left out the lines from
    number `from` to number `to`. `lines` is their number, which includes lines of other learners.
    `GET …/logs?from=&limit=` returns these lines.
    """
    follower = _follower(context, who, job_id, LogFilter(learner, attempt), tail, start, last_event_id(resume))
    return streamed(_sse(follower))


async def _sse(follower: LogFollower) -> AsyncIterator[bytes]:
    async with aclosing(follower.batches()) as batches:
        async for batch in batches:
            yield b"".join([piece.sse() for piece in batch])


@router.websocket("/jobs/{job_id}/logs/ws")
async def follow_logs_by_websocket(
    socket: WebSocket,
    job_id: str,
    context: Ctx,
    who: Viewer,
    learner: LearnerId = None,
    attempt: AttemptNumber = None,
    tail: Tail = None,
    start: From = None,
) -> None:
    """The same events as in the stream; each is a text frame `{"event": …, "data": …}`. To resume, send as `from` the
    number of the last line (or the `to` of a gap) plus 1."""
    follower = await run_in_threadpool(_follower, context, who, job_id, LogFilter(learner, attempt), tail, start)
    await socket.accept()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_send, socket, follower)
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass  # messages from clients have no meaning
        tasks.cancel_scope.cancel()


async def _send(socket: WebSocket, follower: LogFollower) -> None:
    ended = False
    try:
        async with aclosing(follower.batches()) as batches:
            async for batch in batches:
                for piece in batch:
                    for message in piece.messages():
                        await socket.send_text(message)
                ended = any(isinstance(piece, Frame) and piece.name == "end" for piece in batch)
        if ended:
            await socket.close()
        else:
            await socket.close(_POLICY, "sign in again")
    except WebSocketDisconnect:
        pass  # the receiving side notices, too


@router.get(
    "/jobs/{job_id}/logs/download",
    summary="Download a job's log as text",
    response_class=Download,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def download_logs(
    job_id: str, context: Ctx, who: Viewer, learner: LearnerId = None, attempt: AttemptNumber = None
) -> Download:
    """If the job has several learners and `learner` is missing, each line starts with its learner: `learner 2 | …`."""
    with context.database.transaction() as session:
        named = learner is None and find_job(who.scope(session), job_id).learners > 1
    name = f"{job_id}.log" if learner is None else f"{job_id}-learner-{learner}.log"
    return Download(
        context,
        who,
        text_of(ChunkReader(context, who, job_id), LogFilter(learner, attempt), named),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
