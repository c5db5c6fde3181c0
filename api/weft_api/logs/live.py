"""The logs that are followed in this process. Each is polled once, however many follow it.

A :class:`LiveLog` is a task that is woken when its job has news, reads the new chunks and the state in one poll
(:class:`weft_api.logs.polls.Polls`), and keeps the chunks of the last seconds. Followers that are up to date are served
from there: they cost no query.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import anyio.to_thread
import structlog
from anyio import CapacityLimiter
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from weft_api.access.auth import Principal
from weft_api.context import Context, Shared
from weft_api.logs.chunks import Chunk, ChunkFilter, ChunkReader
from weft_api.logs.polls import ENDED, Asked, Polls
from weft_api.streaming.wakeups import WAKEUPS, Subscription
from weft_core.objects import StoreError

log = structlog.get_logger("weft.api")

BEHIND = 50_000
"""The most lines that a follower may be behind before lines are left out."""
NEAR = 1000
"""How many lines before the end the follower then continues."""
_READS = 4
"""Threads that read what is too much for a poll, for all logs together."""
_CHUNKS = 64
"""Read at once then."""
_REST = 0.02
"""Seconds between two polls of one log: the lines that arrive meanwhile are read together."""
_WOKEN_AT_ONCE = 25
"""Followers; the event loop serves others in between. A thousand that get a line take a tenth of a second."""
_KEPT_SECONDS = 3.0
_KEPT_BYTES = 4 << 20
_FRAMING = 100
"""Bytes of an event beside its text."""
_ANY = ChunkFilter()


class Held:
    """A chunk that followers are given: its lines as JSON, and its events, made once for all of them."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.since = time.monotonic()
        self._lines: list[str] | None = None
        self._events: bytes | None = None

    def lines(self) -> list[str]:
        """Each line as the JSON of a :class:`~weft_api.logs.schemas.LogLine`, in ASCII."""
        if self._lines is None:
            chunk = self.chunk
            whose = f'"attempt":{chunk.attempt},"learner":{chunk.rank + 1}'
            texts = zip(chunk.texts(), chunk.times, strict=True)
            self._lines = [
                f'{{"n":{n},"t":{at},{whose},"text":{json.dumps(text.decode("utf-8", "replace"))}}}'
                for n, (text, at) in enumerate(texts, chunk.first_line)
            ]
        return self._lines

    @property
    def size(self) -> int:
        """About how many bytes :meth:`sse` has."""
        return len(self.chunk.body) + _FRAMING * self.chunk.lines

    def sse(self) -> bytes:
        """All lines as server-sent events."""
        if self._events is None:
            numbered = enumerate(self.lines(), self.chunk.first_line)
            self._events = "".join([f"id: {n}\nevent: line\ndata: {line}\n\n" for n, line in numbered]).encode()
        return self._events

    def messages(self) -> Iterator[str]:
        """All lines as messages of a WebSocket."""
        return (f'{{"event":"line","data":{line}}}' for line in self.lines())


class LiveLog:
    """One job's log as it grows. Used from the event loop only.

    ``end``: lines seen so far; ``start``: those from there on are held. ``over``: nothing will ever come any more.
    """

    def __init__(self, context: Context, who: Principal, job_id: str, polls: Polls, limiter: CapacityLimiter) -> None:
        self._context = context
        self._project_id = who.project_id
        self._job_id = job_id
        self._reader = ChunkReader(context, who, job_id)
        self._polls = polls
        self._limiter = limiter
        self._held: deque[Held] = deque()
        self._bytes = 0
        self._bells: dict[asyncio.Event, None] = {}
        self._polling = asyncio.Event()
        self._polled = 0
        self._begun = 0
        self.followers = 0
        self.start = self.end = 0
        self.state: tuple[str, str] | None = None
        self.over = False
        self._subscription: Subscription | None = None
        self._task = asyncio.create_task(self._watch(), name=f"weft-log-{job_id}")

    def stop(self) -> None:
        self._task.cancel()

    async def fresh(self) -> None:
        """Until it has polled once more: earlier results may be out of date (a job that was resumed)."""
        needed = self._begun + 1
        if self._subscription:
            self._subscription.notify()
        while self._polled < needed:
            await self._polling.wait()

    async def news(self, bell: asyncio.Event, patience: float) -> None:
        """Until something has changed, at most ``patience`` seconds. Call it without an await after the last read of
        values that may change.

        Args:
            bell: the follower's own. Setting it wakes this follower.
        """
        self._bells[bell] = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await bell.wait()
        finally:
            self._bells.pop(bell, None)
            bell.clear()

    def held(self, position: int) -> list[Held]:
        """The chunks that are held with lines from ``position`` on, which is not before ``start``."""
        found = []
        for kept in reversed(self._held):
            if kept.chunk.end <= position:
                break
            found.append(kept)
        return found[::-1]

    async def _watch(self) -> None:
        async with WAKEUPS.of(self._context).subscribe(self._job_id) as subscription:
            self._subscription = subscription
            while True:
                more = False
                before = self._told()
                try:
                    self._begun += 1
                    more = await self._poll()
                except (DBAPIError, PoolTimeout, StoreError):
                    pass  # Postgres or S3 is away: the next poll may succeed
                except Exception as error:
                    # Followers would wait for ever, and nobody would know why.
                    log.error("polling a job's log failed", job=self._job_id, exc_info=error)
                else:
                    self._polled = self._begun
                    polled, self._polling = self._polling, asyncio.Event()
                    polled.set()
                    if self._told() != before:
                        await self._wake_followers()
                if not more:
                    await asyncio.sleep(_REST)
                    await subscription.wait()

    def _told(self) -> object:
        """The values whose changes followers get."""
        return self.end, self.state, self.over

    async def _wake_followers(self) -> None:
        for number, bell in enumerate(list(self._bells), 1):
            bell.set()
            if number % _WOKEN_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _poll(self) -> bool:
        """Take in what is new; whether there is more."""
        first = self._begun == 1
        # The state comes before the lines or with them: when it is terminal now, these lines and the rest are all.
        found = await self._polls.look(self._project_id, Asked(self._job_id, None if first else self.end))
        self.state = found.state
        chunks, more = found.chunks, bool(found.chunks) and found.chunks[-1].end < found.end
        if first:
            self.end = found.end
        elif found.far:
            chunks, more, end = await anyio.to_thread.run_sync(self._read, limiter=self._limiter)
            if end is not None:
                self._held.clear()
                self._bytes = 0
                self.end = end
        for chunk in chunks:
            self._held.append(Held(chunk))
            self._bytes += len(chunk.body)
            self.end = chunk.end
        old = time.monotonic() - _KEPT_SECONDS
        while self._held and (self._bytes > _KEPT_BYTES or self._held[0].since < old):
            self._bytes -= len(self._held.popleft().chunk.body)
        self.start = self._held[0].chunk.first_line if self._held else self.end
        self.over = not more and found.state[0] in ENDED
        return more

    def _read(self) -> tuple[list[Chunk], bool, int | None]:
        """The next chunks, whether there are more, and where to go on unless it is after the chunks."""
        chunks = self._reader.forward(self.end, _ANY, _CHUNKS)
        more = len(chunks) == _CHUNKS
        if more and (end := self._reader.end()) - self.end > BEHIND:
            # The log grows faster than it is read. Go on near its end; a follower that needs the rest reads it itself.
            return [], True, end - NEAR
        return chunks, more, None


class LiveLogs:
    """The logs that have followers now."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._logs: dict[str, LiveLog] = {}
        self._polls = Polls(context)
        self._limiter = CapacityLimiter(_READS)

    @asynccontextmanager
    async def of(self, who: Principal, job_id: str) -> AsyncIterator[LiveLog]:
        """The log of a job that ``who`` may see, fresh, until the context is left."""
        found = self._logs.get(job_id)
        if found is None:
            found = self._logs[job_id] = LiveLog(self._context, who, job_id, self._polls, self._limiter)
        found.followers += 1
        try:
            await found.fresh()
            yield found
        finally:
            found.followers -= 1
            if not found.followers:
                del self._logs[job_id]
                found.stop()


LIVE_LOGS = Shared(LiveLogs)
