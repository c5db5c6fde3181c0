"""Wake-ups of followers: a single subscription to Redis for the whole process, however many followers it has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.client import PubSub

from weft_api.context import Context, Shared
from weft_core.wake import EVENTS, LOGS, client_url

_PATIENCE = 0.5
"""Seconds for a connection. Redis only gives hints, so nobody waits for it."""
_AWAY = 1.0
"""Seconds between two polls of a follower while Redis is away."""
_THERE = 3.0
"""The same while Redis is there: a hint may be lost on the way."""
_SILENCE = 2.0
"""Seconds without an answer after which a connection counts as lost: a frozen server closes none."""
_ALWAYS = "weft:bell"
"""A channel without messages, so that there is always a subscription to wait for."""


class Subscription:
    """Waits for news of a job. ``logs``: also of its log."""

    def __init__(self, wakeups: Wakeups, logs: bool) -> None:
        self.logs = logs
        self._wakeups = wakeups
        self._notified = asyncio.Event()

    def notify(self) -> None:
        self._notified.set()

    async def wait(self) -> None:
        """Until there may be news: after a hint, or after a few seconds in any case."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wakeups.poll):
                await self._notified.wait()
        self._notified.clear()


class Wakeups:
    """Passes hints from Redis on to subscriptions. Used from the event loop only; connects at the first subscription.

    Args:
        redis_url: as in the settings.
    """

    def __init__(self, redis_url: str) -> None:
        self._url = client_url(redis_url)
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._channel: PubSub | None = None
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._updates: set[asyncio.Task[None]] = set()
        self._hearers: dict[str, Callable[[bytes], None]] = {}
        self.poll = _AWAY

    def hear(self, channel: str, take: Callable[[bytes], None]) -> None:
        """Pass the messages of a channel on to ``take``, from now on and until the end. Repetition does no harm."""
        if channel in self._hearers:
            return
        self._hearers[channel] = take
        self._start()
        if self._channel is not None:
            self._later(self._add_channel(channel))

    @asynccontextmanager
    async def subscribe(self, job_id: str, *, logs: bool = True) -> AsyncIterator[Subscription]:
        """A subscription to this job's states and events, and to its log, until the context is left."""
        self._start()
        subscription = Subscription(self, logs)
        of_job = self._subscriptions.setdefault(job_id, set())
        of_job.add(subscription)
        try:
            if len(of_job) == 1:
                await self._update_channels(job_id)
            yield subscription
        finally:
            of_job.discard(subscription)
            if not of_job and self._subscriptions.get(job_id) is of_job:
                del self._subscriptions[job_id]
                # Not awaited: the subscriber may have been cancelled.
                self._later(self._update_channels(job_id))

    async def close(self) -> None:
        """Close the connection to Redis."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="weft-wakeups")

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        update = asyncio.create_task(work)
        self._updates.add(update)
        update.add_done_callback(self._updates.discard)

    async def _add_channel(self, channel: str) -> None:
        async with self._lock:
            if self._channel is not None:
                with contextlib.suppress(redis.RedisError, OSError):
                    await self._channel.subscribe(channel)

    async def _update_channels(self, job_id: str) -> None:
        """Listen to the job's channels if the job has subscriptions, and only then.

        A failure also ends :meth:`_listen`'s connection, and the next connection begins with the right channels.
        """
        async with self._lock:
            if self._channel is None:
                return
            with contextlib.suppress(redis.RedisError, OSError):
                if job_id in self._subscriptions:
                    await self._channel.subscribe(*_channels(job_id))
                else:
                    await self._channel.unsubscribe(*_channels(job_id))

    async def _listen(self) -> None:
        while True:
            client = redis.asyncio.Redis.from_url(self._url, socket_connect_timeout=_PATIENCE)
            try:
                async with client, client.pubsub() as channel:
                    async with self._lock:
                        names = (name for job_id in self._subscriptions for name in _channels(job_id))
                        await channel.subscribe(_ALWAYS, *self._hearers, *names)
                        self._channel = channel
                    await self._forward(channel)
            except (redis.RedisError, OSError):
                pass
            finally:
                self._channel, self.poll = None, _AWAY
            self._notify_all()
            if _is_cancelled():
                return
            await asyncio.sleep(_AWAY)

    async def _forward(self, channel: PubSub) -> None:
        loop = asyncio.get_running_loop()
        heard = loop.time()
        while loop.time() - heard < _SILENCE and not _is_cancelled():
            message = await channel.get_message(timeout=_SILENCE / 4)
            if message is None:
                await channel.ping()
                continue
            heard = loop.time()
            if message["type"] in ("message", "subscribe"):
                # A new subscription notifies too: the follower may have polled before Redis had the subscription.
                self.poll = _THERE
                name = message["channel"].decode()
                take = self._hearers.get(name)
                if take is not None:
                    if message["type"] == "message":
                        take(message["data"])
                    continue
                for subscription in self._subscriptions.get(name.rpartition(":")[2], ()):
                    if subscription.logs or not name.startswith(LOGS):
                        subscription.notify()

    def _notify_all(self) -> None:
        for of_job in self._subscriptions.values():
            for subscription in of_job:
                subscription.notify()


def _wakeups(context: Context) -> Wakeups:
    return Wakeups(context.settings.redis_url.get_secret_value())


WAKEUPS = Shared(_wakeups, Wakeups.close)


def _is_cancelled() -> bool:
    """Whether this task has been cancelled.

    The exception alone does not tell: ``asyncio.wait_for`` of Python 3.11, through which the Redis client sends, loses
    it if the sending has just ended.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _channels(job_id: str) -> tuple[str, str]:
    return LOGS + job_id, EVENTS + job_id
