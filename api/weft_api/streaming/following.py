"""Following a job by server-sent events: poll, send, wait for a wake-up, poll again, until nothing more can come."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Header
from pydantic import BaseModel
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sse_starlette import EventSourceResponse, ServerSentEvent

from weft_api.access.auth import Principal
from weft_api.context import Context, Shared
from weft_api.http.problems import invalid
from weft_api.streaming.sign_ins import SIGN_INS
from weft_api.streaming.wakeups import WAKEUPS
from weft_api.telemetry import METRICS
from weft_core.objects import StoreError

_HEARTBEAT = 15  # seconds between comments, so that proxies keep the connection
# SSE does not count these as line ends, but many clients' libraries do. In JSON they occur inside strings only.
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
FOLLOWER_THREADS = Shared(lambda _: CapacityLimiter(8))
"""The threads that poll for followers. However many followers there are, the other threads answer requests."""
_GIVE_UP = 300  # seconds that a client may take to receive a piece

LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=20,
        description="Resume after this event. Browsers send the header by themselves.",
        json_schema_extra={"pattern": "^[0-9]{0,15}$"},
    ),
]

EVENT_STREAM: dict[str, Any] = {
    "text/event-stream": {
        "schema": {
            "type": "object",
            "description": "A server-sent event.",
            "properties": {
                "event": {"type": "string"},
                "id": {"type": "string"},
                "data": {"type": "string", "description": "JSON."},
            },
        }
    }
}
"""The OpenAPI entry for an answer that follows something."""

News = TypeVar("News")


@dataclass
class Poll(Generic[News]):
    """The findings of a poll of the database."""

    events: list[News] = field(default_factory=list)
    more: bool = False
    """There is more: poll again at once."""
    over: bool = False
    """Nothing more can come."""


def event(name: str, data: BaseModel | dict[str, Any], event_id: int | None = None) -> ServerSentEvent:
    body = data.model_dump_json() if isinstance(data, BaseModel) else json.dumps(data)
    return ServerSentEvent(
        body.translate(_LINE_ENDS), event=name, id=None if event_id is None else str(event_id), sep="\n"
    )


def last_event_id(value: str | None) -> int | None:
    """The id as a number. Raises Problem invalid_request unless it is an id from this API."""
    if not value:
        return None
    if not (value.isascii() and value.isdigit()) or int(value) > 2**53:
        raise invalid("header.Last-Event-ID", "not an id that this API gave", found=value)
    return int(value)


def follow(
    context: Context, who: Principal, stream: str, job_id: str, poll: Callable[[], Poll[ServerSentEvent]]
) -> EventSourceResponse:
    """An answer with the events of a job that ``poll`` finds, again and again.

    Each poll is a short transaction in a thread; while a slow client receives them, no connection is held.

    Raises:
        Problem: too_many_streams.
    """
    SIGN_INS.of(context).admit(who)
    events: AsyncIterator[ServerSentEvent] = polled(context, who, stream, job_id, poll, logs=False)
    return streamed(events)


def streamed(events: AsyncIterator[ServerSentEvent] | AsyncIterator[bytes]) -> EventSourceResponse:
    """The answer that sends ``events``; bytes are whole events already."""
    return EventSourceResponse(
        events,
        ping=_HEARTBEAT,
        send_timeout=_GIVE_UP,
        sep="\n",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


Answer = TypeVar("Answer")


async def _ask(context: Context, question: Callable[[], Answer]) -> Answer:
    return await anyio.to_thread.run_sync(question, limiter=FOLLOWER_THREADS.of(context))


async def polled(
    context: Context, who: Principal, stream: str, job_id: str, poll: Callable[[], Poll[News]], *, logs: bool = True
) -> AsyncGenerator[News, None]:
    """The events that ``poll`` finds, again and again, until nothing more can come or ``who`` is signed out.

    Args:
        logs: also poll when the job has logged something.
    """
    with METRICS.of(context).followers.labels(stream).track_inprogress():
        async with WAKEUPS.of(context).subscribe(job_id, logs=logs) as subscription:
            with SIGN_INS.of(context).watch(who, subscription.notify) as sign_in:
                # Signed out, it ends without `end`: a client that comes back gets a 401 with the reason.
                while not sign_in.ended:
                    found = Poll[News]()
                    # Postgres or S3 may be away: the stream stays, the next poll may succeed.
                    with contextlib.suppress(DBAPIError, PoolTimeout, StoreError):
                        found = await _ask(context, poll)
                    for news in found.events:
                        yield news
                    if found.over:
                        return
                    if not found.more:
                        await subscription.wait()
