"""Turns: callers share the process, however many requests a single caller sends.

A caller (a token, or a browser's session) has a few requests in progress; its others wait for their turn, and hold no
thread and no connection meanwhile. A flood, or a thousand streams that are opened at once, thus waits for itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from weft_api.access.rates import RATES
from weft_api.context import Ctx, Shared
from weft_api.http.problems import UNAUTHENTICATED, Problem

_SHARED = 3
"""Requests of a caller that are in progress while others call, too."""
_ALONE = 16
_QUIET = 10.0
"""Seconds without any other caller, after which a caller counts as alone."""
_LONGEST = 1.0
"""Seconds after which a request counts as waiting for something else, such as a slow store or a client's body: it takes
no time of the process, and its turn is over."""
_MOST_KNOWN = 10_000
_STRANGER = ""
"""One caller for all requests whose credentials have not been accepted before, because anybody can invent many."""


@dataclass
class _Queue:
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Turn:
    """A place among its caller's requests in progress, until :meth:`end`."""

    def __init__(self, turns: Turns, name: str, caller: str) -> None:
        self._turns = turns
        self._name = name
        self._caller = caller
        self._ended = False
        self._timer = asyncio.get_running_loop().call_later(_LONGEST, self.end)

    def accepted(self, caller: str) -> None:
        """The request's credentials are right. Any thread may call it.

        Args:
            caller: the id of the token, or another name of the caller, whichever way the credentials are sent.
        """
        self._turns.know(self._name, caller)

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._timer.cancel()
            self._turns.give_back(self._caller)


class Turns:
    """Used from the event loop, but for :meth:`know`."""

    def __init__(self) -> None:
        self._callers: dict[str, _Queue] = {}
        self._known: OrderedDict[str, str] = OrderedDict()
        self._latest = _STRANGER
        self._mixed_at = time.monotonic()

    def caller(self, name: str) -> str:
        """Who calls with these credentials, if they were right before.

        Args:
            name: stands for the credentials, as they were sent.
        """
        return self._known.get(name, _STRANGER)

    async def take(self, name: str) -> Turn:
        """A turn for a request with these credentials, when it comes."""
        caller = self.caller(name)
        if caller != self._latest:
            self._latest, self._mixed_at = caller, time.monotonic()
        queue = self._callers.setdefault(caller, _Queue())
        if queue.running < self._most():
            queue.running += 1
            return Turn(self, name, caller)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give_back(caller)
            raise
        return Turn(self, name, caller)

    def give_back(self, caller: str) -> None:
        queue = self._callers[caller]
        queue.running -= 1
        while queue.waiting and queue.running < self._most():
            place = queue.waiting.popleft()
            if not place.done():
                queue.running += 1
                place.set_result(None)
        if not queue.running and not queue.waiting:
            del self._callers[caller]

    def know(self, name: str, caller: str) -> None:
        """These credentials are right. Any thread may call it."""
        if name not in self._known:
            while len(self._known) >= _MOST_KNOWN:
                self._known.popitem(last=False)
            self._known[name] = caller

    def forget(self, name: str) -> None:
        """These credentials were refused."""
        self._known.pop(name, None)

    def _most(self) -> int:
        return _ALONE if time.monotonic() - self._mixed_at > _QUIET else _SHARED


TURNS = Shared(lambda _: Turns())
_CREDENTIALS = ("authorization", "cookie", "x-watson-userinfo")


async def _turn(connection: HTTPConnection, context: Ctx) -> AsyncIterator[Turn]:
    told = "\n".join(connection.headers.get(name, "") for name in _CREDENTIALS)
    name = hashlib.sha256(told.encode("latin-1", "replace")).hexdigest()
    turns = TURNS.of(context)
    RATES.of(context).check_again(turns.caller(name))
    turn = await turns.take(name)
    try:
        yield turn
    except Problem as problem:
        if problem.kind is UNAUTHENTICATED:
            turns.forget(name)
        raise
    finally:
        turn.end()


TakesTurn = Annotated[Turn, Depends(_turn, scope="function")]
"""The parameter of the functions that look up a caller. The turn ends with the handler, before its answer is sent, so
streams have none."""
