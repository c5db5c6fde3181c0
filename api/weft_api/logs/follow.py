"""A follower of a job's log: the messages that it gets, by server-sent events or over a WebSocket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import anyio.to_thread
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from weft_api.access.auth import Principal
from weft_api.context import Context
from weft_api.logs import live
from weft_api.logs.chunks import ChunkFilter, ChunkReader
from weft_api.logs.live import LIVE_LOGS, Held, LiveLog
from weft_api.logs.polls import ENDED
from weft_api.logs.read import how_many
from weft_api.streaming import following
from weft_api.streaming.sign_ins import SIGN_INS
from weft_api.telemetry import METRICS
from weft_core.objects import StoreError

_BATCH = 64 << 10
"""The most characters that are sent at once, which is all that a follower takes of memory."""
_PATIENCE = 60.0
"""Seconds; news wakes a follower before."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Frame:
    """An event. ``data`` is JSON in ASCII and therefore has no line end."""

    name: str
    data: str
    id: int | None = None

    def sse(self) -> bytes:
        number = "" if self.id is None else f"id: {self.id}\n"
        return f"{number}event: {self.name}\ndata: {self.data}\n\n".encode()

    def messages(self) -> Iterator[str]:
        yield f'{{"event":"{self.name}","data":{self.data}}}'


Batch = list[Frame | Held]
"""What is sent at once. Followers that get all of a chunk share it."""


class LogFollower:
    """A follower of a job's log.

    A follower is up to date when it has received all lines that exist. From then on, it may be :data:`live.BEHIND`
    lines behind. If it reads more slowly, it gets a ``gap`` that names the lines that are left out, and continues near
    the end. A follower that asked for old lines gets them at its own pace.

    Args:
        start: the number of the first line to send.

    Raises:
        Problem: too_many_streams.
    """

    def __init__(self, context: Context, who: Principal, job_id: str, wanted: ChunkFilter, start: int) -> None:
        SIGN_INS.of(context).admit(who)
        self._context = context
        self._who = who
        self._job_id = job_id
        self._reader = ChunkReader(context, who, job_id)
        self._wanted = wanted
        self._position = start
        self._at_once = 2
        """The number of chunks to read at once for a follower whose lines are not held."""
        self._up_to_date = False
        self._told: tuple[str, str] | None = None

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """The messages, until the job has ended or the follower's token is no longer valid."""
        with METRICS.of(self._context).followers.labels("logs").track_inprogress():
            async with LIVE_LOGS.of(self._context).of(self._who, self._job_id) as log:
                bell = asyncio.Event()
                with SIGN_INS.of(self._context).watch(self._who, bell.set) as sign_in:
                    # Signed out, it ends without `end`: a client that comes back gets a 401 with the reason.
                    while not sign_in.ended:
                        state = log.state
                        ended = state is not None and state[0] in ENDED
                        if state and not ended and state != self._told:
                            self._told = state
                            yield [_state("state", state)]
                        elif gap := self._gap(log):
                            yield [gap]
                        elif self._position < log.end:
                            async for batch in self._lines(log):
                                yield batch
                        elif state and log.over:
                            yield [_state("end", state)]
                            return
                        else:
                            self._up_to_date = True
                            await log.news(bell, _PATIENCE)

    def _gap(self, log: LiveLog) -> Frame | None:
        behind = log.end - self._position
        if not self._up_to_date or behind <= live.BEHIND or self._position >= log.start:
            return None
        first, self._position = self._position, log.end - live.NEAR
        last = self._position - 1
        return Frame("gap", json.dumps({"from": first, "to": last, "lines": last - first + 1}), last)

    async def _lines(self, log: LiveLog) -> AsyncGenerator[Batch, None]:
        """The next lines: the ones in memory, or else some from the store."""
        end = log.end
        if self._position >= log.start:
            self._up_to_date = True
            chunks = log.held(self._position)
            reached = end
        else:
            count = self._at_once
            found = await self._ask(partial(self._reader.forward, self._position, self._wanted, count))
            if found is None:
                return
            chunks = [Held(chunk) for chunk in found]
            reached = end if len(found) < count else self._position
            self._at_once = how_many(found) if found else count
        batch: Batch = []
        size = 0
        for held in chunks:
            for piece, more in self._wanted_of(held):
                if batch and size + more > _BATCH:
                    yield batch
                    batch, size = [], 0
                batch.append(piece)
                size += more
            self._position = max(self._position, held.chunk.end)
        if batch:
            yield batch
        self._position = max(self._position, reached)

    def _wanted_of(self, held: Held) -> Iterator[tuple[Frame | Held, int]]:
        """The lines that are still to be sent, and about how many bytes they have."""
        chunk = held.chunk
        if not self._wanted.takes_chunk(chunk):
            return
        sent = max(0, self._position - chunk.first_line)
        if not sent and held.size <= _BATCH:
            yield held, held.size
            return
        for number, line in enumerate(held.lines()[sent:], chunk.first_line + sent):
            yield Frame("line", line, number), len(line)

    async def _ask(self, question: Callable[[], Answer]) -> Answer | None:
        """None, after a moment, if Postgres or S3 does not answer: the stream stays open, and the next query may
        succeed."""
        try:
            return await anyio.to_thread.run_sync(question, limiter=following.FOLLOWER_THREADS.of(self._context))
        except (DBAPIError, PoolTimeout, StoreError):
            await anyio.sleep(1)
            return None


def _state(name: str, state: tuple[str, str]) -> Frame:
    return Frame(name, json.dumps({"state": state[0], "reason": state[1]}))
