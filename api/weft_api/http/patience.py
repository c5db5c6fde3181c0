"""Time limits for clients that open connections and send nothing, or next to nothing."""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weft_api.http.problems import TOO_SLOW, Problem

HEADERS = 30.0
"""Seconds for a request's headers."""
BODY = 60.0
"""Seconds for a request's body, and a second more for each :data:`RATE` bytes that have arrived."""
RATE = 1024


class PatientProtocol(HttpToolsProtocol):
    """Closes a connection whose headers do not arrive within :data:`HEADERS`; uvicorn has no limit for them."""

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._expect_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def _expect_headers(self) -> None:
        self._stop_timer()
        self._due = self.loop.call_later(HEADERS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._due is not None:
            self._due.cancel()


class PatientBodies:
    """Answers 408 to a request whose body stops on the way, or arrives more slowly than :data:`RATE` bytes a second."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        waited = 0.0
        taken = 0
        complete = False

        async def timed() -> Message:
            nonlocal waited, taken, complete
            if complete:  # only the end of the connection is still to come, and it may take its time
                return await receive()
            began = time.monotonic()  # only the client's time counts, not the handler's
            try:
                async with asyncio.timeout(BODY + taken / RATE - waited):  # wait_for would make a task of each wait
                    message = await receive()
            except TimeoutError:
                raise _too_slow() from None
            waited += time.monotonic() - began
            taken += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            return message

        await self._app(scope, timed, send)


def _too_slow() -> Problem:
    return Problem(
        TOO_SLOW,
        f"the request's body must arrive within {BODY:.0f} s, and a second more for each {RATE} bytes",
        headers={"Connection": "close"},
    )
