"""Tunnels between users and learners: how an agent learns of one, and how its connection finds the user's.

A user's request and the agent's connection may come to different processes of the API. The request then reaches the
agent through Redis, which carries a few bytes; the connection comes straight from the other process, so that no data
goes through Redis (``weft_api.tunnels.hop``).
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import redis
import redis.asyncio
from starlette.websockets import WebSocket

from weft_api.context import Context, Shared
from weft_api.http.problems import LEARNER_UNAVAILABLE, TOO_MANY_STREAMS, Problem
from weft_api.streaming.wakeups import WAKEUPS
from weft_core.wake import client_url

_CHANNEL = "weft:tunnels"
_PLACE = "weft:tunnel:"
_PATIENCE = 30.0
"""Seconds for the agent's connection to come."""
_AGAIN = 0.5
"""Seconds until an agent that has not come is called again: it may just have been between two heartbeats."""
_LONGEST_HOLD = 25.0
"""Seconds. Some proxies give up a request that has not been answered after 30."""
_PROLONGED = 15.0
"""Seconds by which reports may prolong a hold. Agents give up 20 s after the time for which they have asked."""


@dataclass(eq=False)
class Tunnel:
    """A tunnel that waits for its agent, or has it. Only its own API process knows it."""

    kind: str
    attempt: str
    """The SHA-256 of the attempt's token."""
    rank: int
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    agent: asyncio.Future[WebSocket] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """The agent's connection may be closed."""

    @property
    def call(self) -> dict[str, str]:
        """The description of the tunnel in a heartbeat's answer."""
        return {"id": self.id, "kind": self.kind}


@dataclass(eq=False)
class _Held:
    """A heartbeat whose answer is held back."""

    called: asyncio.Future[dict[str, str]]
    limit: asyncio.Timeout
    seconds: float
    """For how long it may be held back after the learner's last heartbeat."""
    end: float
    """When it has to be answered, in the loop's time, however many heartbeats follow."""


class Tunnels:
    """Of one process. Used from the event loop only."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._limits = context.settings.limits
        self._held: dict[tuple[str, int], _Held] = {}
        self._waiting: dict[str, Tunnel] = {}
        self._open: Counter[str] = Counter()
        self._redis: redis.asyncio.Redis | None = None
        self._closing = False

    # --- for heartbeats ---

    async def hold(self, attempt: str, rank: int, seconds: float) -> list[dict[str, str]]:
        """Wait until somebody asks for a tunnel to this learner, but no longer than ``seconds``."""
        if self._closing:
            return []
        WAKEUPS.of(self._context).hear(_CHANNEL, self._heard)
        loop = asyncio.get_running_loop()
        seconds, end = min(seconds, _LONGEST_HOLD), loop.time() + min(seconds + _PROLONGED, _LONGEST_HOLD)
        held = _Held(loop.create_future(), asyncio.timeout(seconds), seconds, end)
        self._held[attempt, rank] = held
        try:
            async with held.limit:
                call = await held.called
                return [call] if call else []
        except TimeoutError:
            return []
        finally:
            if self._held.get((attempt, rank)) is held:
                del self._held[attempt, rank]

    def prolong(self, attempt: str, rank: int) -> None:
        """The learner has just sent another heartbeat: its held one need not be answered yet."""
        held = self._held.get((attempt, rank))
        if held is not None and not held.called.done() and not held.limit.expired():
            now = asyncio.get_running_loop().time()
            held.limit.reschedule(min(now + held.seconds, held.end))

    def release(self) -> None:
        """The process is being stopped: answer all heartbeats."""
        self._closing = True
        for held in self._held.values():
            if not held.called.done():
                held.called.set_result({})

    # --- for users ---

    @contextmanager
    def admitted(self, *owners: tuple[str, int, str]) -> Iterator[None]:
        """Count a tunnel, until the context is left.

        Args:
            owners: of each a name, how many it may have open (0: any number), and the words for it.

        Raises:
            Problem: too_many_streams.
        """
        for name, most, words in owners:
            if most and self._open[name] >= most:
                raise Problem(TOO_MANY_STREAMS, f"{words} has {most} tunnels open: close some first")
        names = [name for name, _, _ in owners]
        self._open.update(names)
        try:
            yield
        finally:
            self._open.subtract(names)
            self._open += Counter()  # drops those with none

    @contextmanager
    def waiting(self, tunnel: Tunnel) -> Iterator[None]:
        """Let the agent's connection find the tunnel, until the context is left."""
        self._waiting[tunnel.id] = tunnel
        try:
            yield
        finally:
            del self._waiting[tunnel.id]
            tunnel.over.set()

    async def call(self, tunnel: Tunnel, address: str) -> WebSocket:
        """The agent's connection.

        Args:
            address: host and port at which other API processes reach this one.

        Raises:
            Problem: learner_unavailable.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while True:
                    if not self._ring(tunnel.attempt, tunnel.rank, tunnel.call):
                        await self._publish(tunnel, address)
                    await asyncio.wait([tunnel.agent], timeout=_AGAIN)
                    if tunnel.agent.done():
                        return tunnel.agent.result()
        raise Problem(
            LEARNER_UNAVAILABLE,
            f"the agent of learner {tunnel.rank + 1} has not opened a tunnel within {_PATIENCE:.0f} s: it may be "
            "starting, or can't reach the API",
        )

    # --- for agents ---

    def find(self, tunnel_id: str) -> Tunnel | None:
        """A tunnel of this process that waits for its agent."""
        tunnel = self._waiting.get(tunnel_id)
        return tunnel if tunnel is not None and not tunnel.agent.done() else None

    async def place_of(self, tunnel_id: str) -> str | None:
        """Host and port of the API process in which a tunnel waits; None: in none."""
        with suppress(redis.RedisError, OSError):
            found = await self._client().get(_PLACE + tunnel_id)
            return found.decode() if isinstance(found, bytes) else found
        return None

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()

    def _client(self) -> redis.asyncio.Redis:
        if self._redis is None:
            url = client_url(self._context.settings.redis_url.get_secret_value())
            self._redis = redis.asyncio.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1)
        return self._redis

    async def _publish(self, tunnel: Tunnel, address: str) -> None:
        told = json.dumps({"attempt": tunnel.attempt, "rank": tunnel.rank, "call": tunnel.call})
        with suppress(redis.RedisError, OSError):  # then only this process can reach the agent
            client = self._client()
            await client.set(_PLACE + tunnel.id, address, ex=int(2 * _PATIENCE))
            await client.publish(_CHANNEL, told)

    def _heard(self, message: bytes) -> None:
        told = json.loads(message)
        self._ring(told["attempt"], told["rank"], told["call"])

    def _ring(self, attempt: str, rank: int, call: dict[str, str]) -> bool:
        held = self._held.get((attempt, rank))
        if held is None or held.called.done():
            return False
        held.called.set_result(call)
        return True


TUNNELS = Shared(Tunnels, Tunnels.close)
