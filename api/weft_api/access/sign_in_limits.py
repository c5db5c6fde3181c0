"""Limits on how often a password may be guessed."""

from __future__ import annotations

import contextlib
import hashlib

import redis

from weft_api.context import Context, Shared
from weft_api.http.problems import TOO_MANY_ATTEMPTS, Problem
from weft_core.wake import client_url

_WINDOW = 300  # seconds
_PER_USER_AND_ADDRESS = 10
_PER_USER = 100  # from all addresses: a few tries with nothing but the user's name must not lock the user out
_PER_ADDRESS = 300  # of all users: an office, or a proxy that hides its clients
_PATIENCE = 0.5


class SignInLimits:
    """Counts sign-ins in Redis, so that all API processes count together. While Redis is away, none are refused."""

    def __init__(self, redis_url: str) -> None:
        self._redis = redis.Redis.from_url(
            client_url(redis_url), socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE
        )

    def begin(self, user: str, address: str) -> None:
        """Count a try before it is made, so that many at once count as many. Raises Problem too_many_attempts."""
        for key, most in self._limits(user, address).items():
            with contextlib.suppress(redis.RedisError, OSError):
                pipeline = self._redis.pipeline()
                pipeline.set(key, 0, ex=_WINDOW, nx=True)  # the window begins with its first try
                pipeline.incr(key)
                pipeline.ttl(key)
                _, count, left = pipeline.execute()
                if count > most:
                    wait = str(max(1, int(left)))
                    detail = f"too many wrong passwords: try again in {wait} s"
                    raise Problem(TOO_MANY_ATTEMPTS, detail, headers={"Retry-After": wait})

    def succeeded(self, user: str, address: str) -> None:
        """The password was right: do not count this try, and forget the user's earlier tries from this address."""
        own, *others = self._limits(user, address)
        with contextlib.suppress(redis.RedisError, OSError):
            pipeline = self._redis.pipeline()
            pipeline.delete(own)
            for key in others:
                pipeline.set(key, 1, ex=_WINDOW, nx=True)
                pipeline.decr(key)
            pipeline.execute()

    @staticmethod
    def _limits(user: str, address: str) -> dict[str, int]:
        name = hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return {
            f"weft:guesses:{name}:{address}": _PER_USER_AND_ADDRESS,
            f"weft:guesses:{name}": _PER_USER,
            f"weft:guesses:at:{address}": _PER_ADDRESS,
        }

    def close(self) -> None:
        self._redis.close()


def _sign_in_limits(context: Context) -> SignInLimits:
    return SignInLimits(context.settings.redis_url.get_secret_value())


SIGN_IN_LIMITS = Shared(_sign_in_limits, SignInLimits.close)
