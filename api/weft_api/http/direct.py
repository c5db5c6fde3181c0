"""Routes without FastAPI's way through parameters and answers, which takes most of the time of a small call."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute


class DirectRoute(APIRoute):
    """Its endpoint gets the request and returns the response. FastAPI only documents it, and runs none of its
    ``dependencies``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint
