"""Passes messages between a user's connection and an agent's, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft_core.settings import LimitSettings

NORMAL, GOING_AWAY, UNSUPPORTED, POLICY = 1000, 1001, 1003, 1008
BROKEN, LIMIT = 4000, 4001
"""Close codes: the learner's side broke; a limit was reached."""
_CHECK_EVERY = 5.0
"""Seconds between two checks of the rights and of the idle time."""


@dataclass(frozen=True)
class Ending:
    code: int
    reason: str = ""


class Bridge:
    """
    Args:
        allowed: returns whether the user still has the right to the tunnel. Runs in a thread.
    """

    def __init__(self, user: WebSocket, agent: WebSocket, limits: LimitSettings, allowed: Callable[[], bool]) -> None:
        self._user = user
        self._agent = agent
        self._limits = limits
        self._allowed = allowed
        self._bytes = 0
        self._heard = 0.0

    async def run(self, signed_out: asyncio.Event) -> None:
        """Until either side has gone or a limit is reached. Closes both."""
        self._heard = asyncio.get_running_loop().time()
        work = [
            asyncio.create_task(self._pass_on(self._user, self._agent, Ending(GOING_AWAY, "the client has gone"))),
            asyncio.create_task(self._pass_on(self._agent, self._user, Ending(BROKEN, "the learner has gone"))),
            asyncio.create_task(self._watch(signed_out)),
        ]
        ending = Ending(BROKEN, "the API process is being stopped")
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            ending = next(iter(done)).result()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            for socket in (self._user, self._agent):
                with suppress(RuntimeError, WebSocketDisconnect):  # it has gone
                    await socket.close(ending.code, ending.reason)

    async def _pass_on(self, source: WebSocket, target: WebSocket, gone: Ending) -> Ending:
        while True:
            message = await source.receive()
            if message["type"] == "websocket.disconnect":
                # A browser says GOING_AWAY when its page is closed. After any other code, the client comes back.
                return Ending(NORMAL) if message.get("code") in (NORMAL, GOING_AWAY) else gone
            data = message.get("bytes")
            if data is None:
                return Ending(UNSUPPORTED, "a tunnel has binary messages only")
            self._bytes += len(data)
            self._heard = asyncio.get_running_loop().time()
            if self._limits.tunnel_bytes and self._bytes > self._limits.tunnel_bytes:
                return Ending(LIMIT, f"a tunnel may carry {self._limits.tunnel_bytes} bytes")
            try:
                await target.send_bytes(data)
            except (RuntimeError, WebSocketDisconnect):
                return Ending(BROKEN, "the other side has gone")

    async def _watch(self, signed_out: asyncio.Event) -> Ending:
        idle = self._limits.tunnel_idle_seconds
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_EVERY):
                    await signed_out.wait()
                return Ending(POLICY, "sign in again")
            if idle and asyncio.get_running_loop().time() - self._heard > idle:
                return Ending(LIMIT, f"nothing came through this tunnel for {idle:g} s")
            with suppress(DBAPIError, PoolTimeout):  # asked again in a moment
                if not await run_in_threadpool(self._allowed):
                    return Ending(POLICY, "you no longer have the right to enter this project's jobs")
