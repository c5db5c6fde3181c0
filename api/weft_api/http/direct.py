"""Routes without FastAPI's way through parameters and answers, which takes most of the time of a small call."""

from __future__ import annotations

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send


class DirectRoute(APIRoute):
    """Its endpoint is a coroutine function that gets the request and returns the response. FastAPI only documents it,
    and runs none of its ``dependencies``. What the endpoint raises is answered as everywhere."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)  # which refuses it
            return
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)
