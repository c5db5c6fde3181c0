"""The sign-ins behind open streams. One query asks about all of a process, however many streams it has."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import anyio.to_thread
from anyio import CapacityLimiter
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from weft_api.access.auth import Principal, still_signed_in
from weft_api.context import Context, Shared
from weft_api.http.problems import TOO_MANY_STREAMS, Problem

_INTERVAL = 2.0
"""Seconds between two queries. A stream ends at most 5 s after its token has been revoked."""
_MOST = {"token": 1000, "user": 2000, "address": 4000}
"""Streams that one token, user and client's address may have open in one process of the API."""


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
        self._open: Counter[tuple[str, str]] = Counter()
        self._limiter = CapacityLimiter(1)
        self._task: asyncio.Task[None] | None = None

    def admit(self, who: Principal) -> None:
        """Raises Problem too_many_streams. Any thread may call it, before a stream's answer begins."""
        for kind, name in _owners(who):
            if self._open[kind, name] >= _MOST[kind]:
                message = f"this {kind} has {_MOST[kind]:,} streams open: close some, or try again in a moment"
                raise Problem(TOO_MANY_STREAMS, message)

    @contextmanager
    def watch(self, who: Principal, wake: Callable[[], None]) -> Iterator[SignIn]:
        """The sign-in of ``who``, until the context is left. It has ended at once if too many were admitted together.

        Args:
            wake: called when the sign-in ends, so that a stream that waits notices it.
        """
        sign_in = SignIn(wake)
        streams = self._watched.setdefault(who, set())
        streams.add(sign_in)
        self._open.update(_owners(who))
        sign_in.ended = any(self._open[owner] > _MOST[owner[0]] for owner in _owners(who))
        if self._task is None:
            self._task = asyncio.create_task(self._poll(), name="weft-sign-ins")
        try:
            yield sign_in
        finally:
            for owner in _owners(who):
                self._open[owner] -= 1
                if not self._open[owner]:
                    del self._open[owner]
            streams.discard(sign_in)
            if not streams and self._watched.get(who) is streams:
                del self._watched[who]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _poll(self) -> None:
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


def _owners(who: Principal) -> list[tuple[str, str]]:
    found = {"token": who.token_id, "user": who.user_id, "address": who.address}
    return [(kind, name) for kind, name in found.items() if name]


SIGN_INS = Shared(SignIns, SignIns.close)
