"""Wake-ups: hints through Redis that something changed. They may be lost, so each waiter also polls at
intervals. (In the API, ``weft_api.streaming.wakeups`` listens to them.)"""

from __future__ import annotations

import contextlib

import redis
from celery import Celery
from kombu.exceptions import OperationalError

STEP_TASK = "weft.step"
STEP_QUEUE = "weft"
# Channels of a job: its id follows.
LOGS = "weft:logs:"
EVENTS = "weft:events:"

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
    """Sends wake-ups. No method raises because Redis is away."""

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
        self.changed(job_id)

    def logs(self, job_id: str) -> None:
        """Tell followers that this job has new log lines."""
        self._publish(LOGS + job_id)

    def changed(self, job_id: str) -> None:
        """Tell followers that this job has new events."""
        self._publish(EVENTS + job_id)

    def _publish(self, channel: str) -> None:
        with contextlib.suppress(redis.RedisError, OSError):
            self._redis.publish(channel, b"")

    def ping(self) -> bool:
        """Whether Redis answers."""
        try:
            return bool(self._redis.ping())
        except (redis.RedisError, OSError):
            return False

    def close(self) -> None:
        self._redis.close()
        self._celery.close()
