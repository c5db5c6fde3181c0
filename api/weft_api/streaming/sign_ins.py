"""The sign-ins behind open streams. One query asks about all of a process, however many streams it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import anyio.to_thread
from anyio import CapacityLimiter
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from weft_api.access.auth import Principal, still_signed_in
from weft_api.context import Context, Shared

_INTERVAL = 2.0
"""Seconds between two queries. A stream ends at most 5 s after its token has been revoked."""


class SignIn:
    """The sign-in behind a stream. ``ended``: the stream must end, too."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.ended = False
        self._wake = wake

    def end(self) -> None:
        self.ended = True
        self._wake()


class SignIns:
    """Watches the sign-ins while streams are open. Used from the event loop only."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._watched: dict[Principal, set[SignIn]] = {}
        self._limiter = CapacityLimiter(1)
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, who: Principal, wake: Callable[[], None]) -> Iterator[SignIn]:
        """The sign-in of ``who``, until the context is left.

        Args:
            wake: called when the sign-in ends, so that a stream that waits looks at it.
        """
        sign_in = SignIn(wake)
        streams = self._watched.setdefault(who, set())
        streams.add(sign_in)
        if self._task is None:
            self._task = asyncio.create_task(self._look(), name="weft-sign-ins")
        try:
            yield sign_in
        finally:
            streams.discard(sign_in)
            if not streams and self._watched.get(who) is streams:
                del self._watched[who]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self) -> None:
        try:
            while self._watched:
                await asyncio.sleep(_INTERVAL)
                asked = frozenset(self._watched)
                question = partial(still_signed_in, self._context, asked)
                try:
                    valid = await anyio.to_thread.run_sync(question, limiter=self._limiter)
                except (DBAPIError, PoolTimeout):
                    continue  # Postgres is away: asked again in a moment
                for who in asked - valid:
                    for sign_in in tuple(self._watched.get(who, ())):
                        sign_in.end()
        finally:
            self._task = None


SIGN_INS = Shared(SignIns, SignIns.close)
