"""Wake-ups: hints through Redis that something changed. Best effort: whoever waits also looks by himself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import redis
import redis.asyncio
from celery import Celery
from kombu.exceptions import OperationalError

STEP_TASK = "weft.step"
STEP_QUEUE = "weft"

# A wake-up is worth this long, not longer: the sweep finds the job anyhow.
_PATIENCE = 0.5  # seconds


def broker_url(redis_url: str) -> str:
    """``unix:///path`` (redis-py's form of a socket) as kombu writes it: ``redis+socket:///path``."""
    return redis_url.replace("unix://", "redis+socket://", 1) if redis_url.startswith("unix://") else redis_url


def client_url(redis_url: str) -> str:
    """The inverse, for redis-py."""
    prefix = "redis+socket://"
    return redis_url.replace(prefix, "unix://", 1) if redis_url.startswith(prefix) else redis_url


class Wake:
    """Sends and receives wake-ups. No method raises because Redis is away."""

    def __init__(self, redis_url: str) -> None:
        self._url = client_url(redis_url)
        self._celery = Celery("weft", broker=broker_url(redis_url), set_as_current=False)
        self._celery.conf.update(
            task_ignore_result=True,
            task_default_queue=STEP_QUEUE,
            broker_connection_timeout=_PATIENCE,
            broker_connection_max_retries=0,
            broker_transport_options={
                "socket_connect_timeout": _PATIENCE,
                "socket_timeout": _PATIENCE,
                "max_retries": 0,
            },
        )
        self._redis = redis.Redis.from_url(self._url, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE)

    def job(self, job_id: str) -> None:
        """Tell the workers that this job has something to do."""
        with contextlib.suppress(OperationalError, redis.RedisError, OSError):
            self._celery.send_task(STEP_TASK, args=[job_id], queue=STEP_QUEUE, retry=False, ignore_result=True)
        self._publish(f"weft:events:{job_id}")

    def logs(self, job_id: str) -> None:
        """Tell followers that this job has new log lines."""
        self._publish(f"weft:logs:{job_id}")

    def changed(self, job_id: str) -> None:
        """Tell followers that this job has new events."""
        self._publish(f"weft:events:{job_id}")

    def _publish(self, channel: str) -> None:
        with contextlib.suppress(redis.RedisError, OSError):
            self._redis.publish(channel, b"")

    def ping(self) -> bool:
        """Whether Redis answers."""
        try:
            return bool(self._redis.ping())
        except (redis.RedisError, OSError):
            return False

    async def listen(self, job_id: str, poll: float = 1.0) -> AsyncGenerator[None, None]:
        """Yield whenever the job may have new lines or events, at least every ``poll`` seconds; for ever.

        Falls back to polling alone while Redis is away.
        """
        while True:
            client = redis.asyncio.Redis.from_url(self._url, socket_connect_timeout=_PATIENCE)
            try:
                async with client, client.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(f"weft:logs:{job_id}", f"weft:events:{job_id}")
                    yield  # what came between the caller's last look and the subscription
                    while True:
                        await channel.get_message(timeout=poll)
                        yield
            except (redis.RedisError, OSError):
                await asyncio.sleep(poll)
                yield

    def close(self) -> None:
        self._redis.close()
        self._celery.close()
