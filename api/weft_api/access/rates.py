"""How many requests may come with one token.

The method is the generic cell rate algorithm. It keeps one number for each token: the moment at which all requests so
far would be due at the steady rate. A request may come a burst ahead of that moment.
"""

from __future__ import annotations

import math
import threading
import time

import redis

from weft_api.context import Context, Shared
from weft_api.http.problems import TOO_MANY_REQUESTS, Problem
from weft_core.settings import LimitSettings
from weft_core.wake import client_url

_PATIENCE = 0.5
_AWAY = 5.0
"""Seconds for which a Redis that did not answer is not asked again, so that no request waits for it."""
_MOST = 10_000
"""The number of refused users that are kept."""
_FEWEST = 256
"""The number of attempts that are kept before quiet ones are dropped; or twice as many as are left then."""
_LEARNER_BURST = 10.0
"""Seconds' worth of requests that the learners of an attempt may make at once, as when all of them start."""

# Returns the seconds to wait; 0: the request may come. By the clock of Redis, which all processes share.
_TAKE = """
local told = redis.call('TIME')
local now = told[1] + told[2] / 1000000
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now)
local wait = due - now - interval * (burst - 1)
if wait > 0.000001 then return string.format('%.6f', wait) end
redis.call('SET', KEYS[1], string.format('%.6f', due + interval), 'PX', math.ceil((due + interval - now) * 1000))
return '0'
"""


class Rates:
    """Refuses requests that come too fast.

    Users' requests are counted in Redis, so that all API processes count together; while Redis is away, none are
    refused. Learners' requests are counted in this process, because they are many and must not wait.
    """

    def __init__(self, redis_url: str, limits: LimitSettings) -> None:
        self._limits = limits
        self._redis = redis.Redis.from_url(
            client_url(redis_url), socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE, decode_responses=True
        )
        self._take = self._redis.register_script(_TAKE)
        self._away_until = 0.0
        self._refused: dict[str, float] = {}
        """Users' keys, and the moments from which on their requests may come again."""
        self._due: dict[str, float] = {}
        self._most_due = _FEWEST
        self._lock = threading.Lock()

    def check_user(self, key: str) -> None:
        """Count a request of a user.

        Args:
            key: the id of the token or the session, or another name of the sign-in.

        Raises:
            Problem: too_many_requests.
        """
        most = self._limits.requests_per_minute
        if not most or time.monotonic() < self._away_until:
            return
        try:
            wait = float(self._take(keys=[f"weft:rate:{key}"], args=[60 / most, self._limits.requests_burst]))
        except (redis.RedisError, OSError):
            self._away_until = time.monotonic() + _AWAY
            return
        if wait:
            if len(self._refused) >= _MOST:
                self._refused.clear()
            self._refused[key] = time.monotonic() + wait
            raise self._too_fast(wait)

    def check_again(self, key: str) -> None:
        """Refuse a request of a user that Redis would refuse, as it has just refused one: a flood reaches no server.

        Raises:
            Problem: too_many_requests.
        """
        wait = self._refused.get(key, 0.0) - time.monotonic()
        if wait > 0:
            raise self._too_fast(wait)

    def _too_fast(self, wait: float) -> Problem:
        return _refusal(wait, f"this token may make {self._limits.requests_per_minute:,} requests a minute")

    def check_learner(self, attempt: str) -> None:
        """Count a request of a learner. It does not block. Raises Problem too_many_requests.

        Args:
            attempt: any name of the attempt, such as the hash of its token.
        """
        most = self._limits.learner_requests_per_minute
        if not most:
            return
        now = time.monotonic()
        with self._lock:
            if len(self._due) >= self._most_due and attempt not in self._due:
                self._due = {name: due for name, due in self._due.items() if due > now}
                self._most_due = max(_FEWEST, 2 * len(self._due))
            due = max(self._due.get(attempt, 0.0), now)
            wait = due - now - _LEARNER_BURST
            if wait <= 0:
                self._due[attempt] = due + 60 / most
        if wait > 0:
            raise _refusal(wait, f"the learners of this attempt may make {most:,} requests a minute")

    def close(self) -> None:
        self._redis.close()


def _refusal(wait: float, what: str) -> Problem:
    seconds = math.ceil(wait)
    return Problem(TOO_MANY_REQUESTS, f"{what}: try again in {seconds} s", headers={"Retry-After": str(seconds)})


def _rates(context: Context) -> Rates:
    return Rates(context.settings.redis_url.get_secret_value(), context.settings.limits)


RATES = Shared(_rates, Rates.close)
