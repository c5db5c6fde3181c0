"""Wakes those who follow jobs: one subscription to Redis for the whole process, however many follow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis
import redis.asyncio
from redis.asyncio.client import PubSub

from weft_api.context import Context, Shared
from weft_core.wake import EVENTS, LOGS, client_url

_PATIENCE = 0.5
"""Seconds for a connection; Redis gives hints only, nobody waits for it."""
_AWAY = 1.0
"""Seconds between two looks of who waits while Redis is away."""
_THERE = 3.0
"""The same while Redis is there: hints may be lost on the way."""
_SILENCE = 2.0
"""Seconds without an answer after which a connection counts as lost: a frozen server closes none."""
_ALWAYS = "weft:bell"
"""A channel without messages, so that there is always a subscription to wait on."""


class Ear:
    """One who waits for news of a job."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self) -> None:
        """Until there may be something new: after a hint, or after a few seconds in any case."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._bell.poll):
                await self._rung.wait()
        self._rung.clear()


class Bell:
    """Hands Redis' hints on to those who wait. Used from the event loop only; connects when somebody listens.

    Args:
        redis_url: as the settings have it.
    """

    def __init__(self, redis_url: str) -> None:
        self._url = client_url(redis_url)
        self._ears: dict[str, set[Ear]] = {}
        self._channel: PubSub | None = None
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self.poll = _AWAY

    @asynccontextmanager
    async def hear(self, job_id: str) -> AsyncIterator[Ear]:
        """An ear for this job's log, states and events, until the context is left."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="weft-bell")
        ear = Ear(self)
        ears = self._ears.setdefault(job_id, set())
        ears.add(ear)
        try:
            if len(ears) == 1:
                await self._tune(job_id)
            yield ear
        finally:
            ears.discard(ear)
            if not ears and self._ears.get(job_id) is ears:
                del self._ears[job_id]
                # Not awaited: whoever leaves may have been cancelled.
                leaving = asyncio.create_task(self._tune(job_id))
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Let go of Redis."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _tune(self, job_id: str) -> None:
        """Bring the subscription in line with who listens now. A failure shows to `_listen` too, which starts anew."""
        async with self._lock:
            if self._channel is None:
                return
            with contextlib.suppress(redis.RedisError, OSError):
                if job_id in self._ears:
                    await self._channel.subscribe(*_channels(job_id))
                else:
                    await self._channel.unsubscribe(*_channels(job_id))

    async def _listen(self) -> None:
        while True:
            client = redis.asyncio.Redis.from_url(self._url, socket_connect_timeout=_PATIENCE)
            try:
                async with client, client.pubsub() as channel:
                    async with self._lock:
                        await channel.subscribe(_ALWAYS, *(name for job_id in self._ears for name in _channels(job_id)))
                        self._channel = channel
                    await self._hand_on(channel)
            except (redis.RedisError, OSError):
                pass
            finally:
                self._channel, self.poll = None, _AWAY
            self._ring_all()
            await asyncio.sleep(_AWAY)

    async def _hand_on(self, channel: PubSub) -> None:
        loop = asyncio.get_running_loop()
        heard = loop.time()
        while loop.time() - heard < _SILENCE:
            message = await channel.get_message(timeout=_SILENCE / 4)
            if message is None:
                await channel.ping()
                continue
            heard = loop.time()
            if message["type"] in ("message", "subscribe"):
                # A new subscription rings too: who waits may have looked before it stood.
                self.poll = _THERE
                job_id = message["channel"].decode().rpartition(":")[2]
                for ear in self._ears.get(job_id, ()):
                    ear.ring()

    def _ring_all(self) -> None:
        for ears in self._ears.values():
            for ear in ears:
                ear.ring()


def _bell(context: Context) -> Bell:
    return Bell(context.settings.redis_url.get_secret_value())


BELL = Shared(_bell, Bell.close)


def _channels(job_id: str) -> tuple[str, str]:
    return LOGS + job_id, EVENTS + job_id
