"""``/logs`` and ``/metrics`` of a model: a plain answer, or a websocket at the same URL, which always follows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated

import anyio
from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from sqlalchemy import select

from weft_api.access.auth import Principal
from weft_api.context import Context, Ctx
from weft_api.ffdl.auth import Viewer
from weft_api.ffdl.frames import metric_frames, text_frames
from weft_api.ffdl.lookup import find_model
from weft_api.ffdl.since_time import SinceTime, parse_since_time
from weft_api.ffdl.trainingdata import record_since, records_from, start_of
from weft_api.ffdl.translate import Json, metric_data, status_data
from weft_api.logs.chunks import ChunkFilter, ChunkReader
from weft_api.logs.follow import LogFollower
from weft_api.logs.live import Held
from weft_api.logs.read import LogFilter, ascending
from weft_api.metrics.read import read_records
from weft_api.metrics.series import snapshot
from weft_api.streaming.downloads import Download
from weft_api.streaming.following import Poll, polled
from weft_api.streaming.sign_ins import SIGN_INS
from weft_core.lifecycle.states import TERMINAL
from weft_core.store.models import Job

router = APIRouter(include_in_schema=False)

_TEXT = "application/octet-stream"
"""FfDL's client can put nothing else into a file."""
_PROTOCOLS = ("ws", "wss")
_POLICY = 1008
_PAGE = 500
_PACE = 0.005
"""Seconds between two metrics, so that a network carries each by itself: FfDL's client can't read one that is cut."""

Follow = Annotated[bool, Query()]


# --- logs ------------------------------------------------------------------------------------------------------------


@router.get("/v1/models/{model_id}/logs")
def get_logs(
    model_id: str, context: Ctx, who: Viewer, follow: Follow = False, since_time: SinceTime = ""
) -> StreamingResponse:
    """The lines as they were written, those of all learners in the order in which they came."""
    start = _log_start(context, who, model_id, since_time)
    if follow:
        follower = LogFollower(context, who, model_id, LogFilter(), start)
        return StreamingResponse(_LogNews(follower).pieces(), media_type=_TEXT)
    return Download(context, who, _log_text(ChunkReader(context, who, model_id), start), media_type=_TEXT)


def _log_start(context: Context, who: Principal, model_id: str, since_time: str) -> int:
    since = parse_since_time(since_time)
    with context.database.transaction() as session:
        find_model(who.scope(session), model_id)
    return 0 if since is None else start_of(ChunkReader(context, who, model_id), since)


def _log_text(reader: ChunkReader, start: int) -> Iterator[bytes]:
    end = reader.end()
    for chunk in ascending(reader, start, ChunkFilter()) if start < end else ():
        if chunk.first_line >= end:
            return
        skipped = max(0, start - chunk.first_line)
        yield b"".join(text + b"\n" for text in chunk.texts()[skipped:])


class _LogNews:
    """The text for a follower of a log. ``ended``: the job has ended, and no more text follows."""

    def __init__(self, follower: LogFollower) -> None:
        self._follower = follower
        self.ended = False

    async def pieces(self) -> AsyncIterator[str]:
        async with aclosing(self._follower.batches()) as batches:
            async for batch in batches:
                lines = []
                for piece in batch:
                    if isinstance(piece, Held):
                        lines += [json.loads(line)["text"] for line in piece.lines()]
                        continue
                    data = json.loads(piece.data)
                    if piece.name == "line":
                        lines.append(data["text"])
                    elif piece.name == "gap":
                        first = data["from"] + 1
                        lines.append(
                            f"[{data['lines']} lines left out, read too slowly: loglines?pos={first} has them]"
                        )
                    self.ended |= piece.name == "end"
                for text in text_frames(lines):
                    yield text


@router.websocket("/v1/models/{model_id}/logs")
async def follow_logs(socket: WebSocket, model_id: str, context: Ctx, who: Viewer, since_time: SinceTime = "") -> None:
    """Raw lines; before the job has started there are none, and the socket waits. Closed normally when it has ended."""
    start = await run_in_threadpool(_log_start, context, who, model_id, since_time)
    await _serve(socket, _LogNews(LogFollower(context, who, model_id, LogFilter(), start)))


# --- metrics ---------------------------------------------------------------------------------------------------------


@router.get("/v1/models/{model_id}/metrics")
def get_metrics(
    model_id: str, context: Ctx, who: Viewer, follow: Follow = False, since_time: SinceTime = ""
) -> StreamingResponse:
    """A MetricData in JSON a line."""
    start, since = _metrics_start(context, who, model_id, since_time)
    if follow:
        news = _MetricNews(context, who, model_id, start, since)
        return StreamingResponse((f"{piece}\n" async for piece in news.pieces()), media_type=_TEXT)
    found = records_from(context, who, model_id, start, since)
    return Download(context, who, (json.dumps(metric_data(record)) + "\n" for record in found), media_type=_TEXT)


def _metrics_start(context: Context, who: Principal, model_id: str, since_time: str) -> tuple[int, int | None]:
    since = parse_since_time(since_time)
    with context.database.transaction() as session:
        scope = who.scope(snapshot(session))
        find_model(scope, model_id)
        return 1 if since is None else record_since(scope, model_id, since), since


class _MetricNews:
    """The messages for a follower of metrics: MetricData, and the job's state when it changes."""

    def __init__(self, context: Context, who: Principal, model_id: str, start: int, since: int | None) -> None:
        SIGN_INS.of(context).admit(who)
        self._context = context
        self._who = who
        self._model_id = model_id
        self._next = start
        self._since = since
        self._told: tuple[str, str] | None = None
        self.ended = False

    async def pieces(self) -> AsyncIterator[str]:
        async with aclosing(polled(self._context, self._who, "metrics", self._model_id, self._poll)) as found:
            async for data in found:
                for piece in metric_frames(data):
                    yield piece
                    await anyio.sleep(_PACE)

    def _poll(self) -> Poll[Json]:
        with self._context.database.transaction() as session:
            scope = self._who.scope(snapshot(session))
            query = select(Job.state, Job.reason).where(Job.id == self._model_id, Job.project_id == scope.project_id)
            row = session.execute(query).one_or_none()
            page = read_records(scope, self._model_id, self._next, _PAGE)
        if page.records:
            self._next = page.records[-1].rindex + 1
        found = [metric_data(record) for record in page.records if self._since is None or record.t >= self._since]
        state = (row[0], row[1]) if row else ("DELETED", "the job has been deleted")
        more = len(page.records) == _PAGE
        over = not more and (row is None or state[0] in TERMINAL)
        if not more and state != self._told:
            self._told = state
            found.append(status_data(*state))
        self.ended = over
        return Poll(found, more=more, over=over)


@router.websocket("/v1/models/{model_id}/metrics")
async def follow_metrics(
    socket: WebSocket, model_id: str, context: Ctx, who: Viewer, since_time: SinceTime = ""
) -> None:
    """A MetricData in JSON a frame."""
    start, since = await run_in_threadpool(_metrics_start, context, who, model_id, since_time)
    await _serve(socket, _MetricNews(context, who, model_id, start, since))


# --- both ------------------------------------------------------------------------------------------------------------


async def _serve(socket: WebSocket, news: _LogNews | _MetricNews) -> None:
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(next((protocol for protocol in offered if protocol in _PROTOCOLS), None))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_send, socket, news)
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass  # messages from the client have no meaning
        tasks.cancel_scope.cancel()


async def _send(socket: WebSocket, news: _LogNews | _MetricNews) -> None:
    try:
        async for piece in news.pieces():
            await socket.send_text(piece)
        if news.ended:
            await socket.close()
        else:
            await socket.close(_POLICY, "sign in again")
    except WebSocketDisconnect:
        pass  # the receiving side notices, too
