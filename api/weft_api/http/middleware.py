"""Middleware for every request: the limit of its body, timing, the log of requests, safe headers."""

from __future__ import annotations

import secrets
import time
from collections.abc import MutableMapping
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft_api.http.bodies import MIB, body_limit
from weft_api.http.problems import TOO_LARGE, Problem
from weft_api.telemetry import Metrics
from weft_core.service_log import note, noting
from weft_core.tracing import Tracing

_QUIET = {
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/v1/learner/heartbeat",
    "/api/v1/learner/logs",
    "/api/v1/learner/metrics",
    "/api/v1/learner/report",
    "/api/v1/learner/peers",
    "/api/2.0/mlflow/runs/log-batch",
    "/api/2.0/mlflow/runs/log-metric",
}

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}

log = structlog.get_logger("weft.api")


class LimitedBodies:
    """Answers 413 to a body beyond its limit (:func:`weft_api.http.bodies.body_limit`), without reading the rest."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "")
        announced = int(length[:20]) if length.isascii() and length.isdigit() else 0
        taken = 0

        def check(size: int) -> None:
            limit = body_limit(scope)
            if size > limit.size:
                refusal = f"{limit.what} may have {limit.size} bytes ({limit.size / MIB:.1f} MiB)"
                raise Problem(TOO_LARGE, refusal, headers={"Connection": "close"})

        async def limited() -> Message:
            nonlocal taken
            check(announced)
            message = await receive()
            taken += len(message.get("body", b""))
            check(taken)
            return message

        await self._app(scope, limited, send)


class Observed:
    """Times requests by route template, logs them, and adds the safe headers."""

    def __init__(self, app: ASGIApp, metrics: Metrics, tracing: Tracing) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {}).update(request_id=request_id, began=time.monotonic())

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if scope["scheme"] == "https":
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
                headers["X-Request-ID"] = request_id
            await send(message)

        with noting():
            note(request_id=request_id)
            try:
                if scope["path"] in _QUIET:
                    await self._app(scope, receive, noted)
                else:
                    with self._tracing.request(scope["method"], Headers(scope=scope)) as told:
                        try:
                            await self._app(scope, receive, noted)
                        finally:
                            told["http.route"] = _route(scope)
                            told["http.response.status_code"] = status
            finally:
                waited = scope["state"].get("waited", 0.0)  # because the client asked for it
                self._note(scope, status, time.perf_counter() - started - waited)

    def _note(self, scope: MutableMapping[str, Any], status: int, seconds: float) -> None:
        self._metrics.requests.labels(scope["method"], _route(scope), str(status)).observe(seconds)
        # Of the frequent calls, only those are logged that were refused: what they brought may be lost. Too many
        # requests come again, and would fill the log.
        level = log.debug if scope["path"] in _QUIET and (status < 400 or status == 429) else log.info
        level(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            ms=round(seconds * 1000, 1),
        )


def _route(scope: MutableMapping[str, Any]) -> str:
    """The route's template. The path would make a time series for each id. Mounts and 404s have no template."""
    return getattr(scope.get("route"), "path", None) or "other"
