"""Wake-ups for any job, through Redis: a sweeper for which no job waits or ends need not search all the time."""

from __future__ import annotations

import time
from typing import Any

import redis

from weft_core.wake import EVENTS, client_url

_PATIENCE = 0.5  # seconds that Redis may take to answer


class WakeUps:
    """Waits for a change of any job. It is subscribed to changes from its first wait until it is closed."""

    def __init__(self, redis_url: str) -> None:
        self._redis: Any = redis.Redis.from_url(  # whose subscriptions have no types
            client_url(redis_url), socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE
        )
        self._subscription: Any = None

    def wait(self, seconds: float) -> None:
        """Return when a job changes, or after ``seconds``. Without Redis, it does not wait.

        The first call subscribes, and returns at once: a search that follows finds what has changed before.
        """
        try:
            if self._subscription is None:
                self._subscription = self._redis.pubsub()
                self._subscription.psubscribe(EVENTS + "*")
                # Until Redis has answered, a change may pass by that the search which follows does not find either.
                if self._subscription.get_message(timeout=_PATIENCE) is None:
                    self.close()
                return
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0 and self._subscription.get_message(timeout=left) is None:
                pass
            while self._subscription.get_message() is not None:  # one search follows, however many have come
                pass
        except (redis.RedisError, OSError):
            self.close()

    def close(self) -> None:
        """End the subscription; the next wait makes another."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
