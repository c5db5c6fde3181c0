"""The problem that each exception of a route becomes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request, WebSocket
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Mount
from starlette.websockets import WebSocketState

from weft_api.http import problems
from weft_api.http.problems import FieldProblem, Kind, Problem, ProblemForm, answer, clean
from weft_core.bundle import BundleError
from weft_core.manifest import ManifestError
from weft_core.objects import StoreError
from weft_core.store.backups import BackupRuns
from weft_core.store.jobs import Conflict

log = structlog.get_logger("weft.api")

_BY_STATUS: dict[int, Kind] = {
    401: problems.UNAUTHENTICATED,
    403: problems.FORBIDDEN,
    404: problems.NOT_FOUND,
    405: problems.METHOD_NOT_ALLOWED,
    413: problems.TOO_LARGE,
    415: problems.UNSUPPORTED_MEDIA,
}
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_MOST = 50
_TOO_MUCH = (
    problems.TOO_LARGE,
    problems.TOO_MANY_REQUESTS,
    problems.TOO_MANY_SIGN_INS,
    problems.TOO_MANY_ATTEMPTS,
    problems.TOO_MANY_STREAMS,
)
_PAUSE = 0.5
"""Seconds before such an answer is sent. Without the pause, a client that repeats its request at once would keep the
process busy with refusals."""
_FAILED = 1011
"""The close code of a WebSocket after an error."""


def install(app: FastAPI, form: ProblemForm) -> None:
    """Make ``app`` answer every exception as a problem. ``form`` is applied to each answer."""
    handlers: dict[type[Exception], Any] = {
        HTTPException: _http,
        RequestValidationError: _validation,
        WebSocketRequestValidationError: _validation,
        ManifestError: _manifest,
        BundleError: lambda _, error: answer(problems.INVALID_BUNDLE, str(error)),
        StoreError: _store,
        BackupRuns: _backup,
        Conflict: lambda _, error: answer(problems.CONFLICT, str(error)),
        DataError: _data,
        OperationalError: _database,
        InterfaceError: _database,
        PoolTimeout: _database,
        DBAPIError: _dbapi,
        ClientDisconnect: lambda _, __: answer(problems.INVALID_REQUEST, "the client went away"),
        Exception: _unexpected,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, _also_for_websockets(handler, form))


def _also_for_websockets(handler: Callable[[Any, Any], JSONResponse], form: ProblemForm) -> Callable[[Any, Any], Any]:
    """A WebSocket that has not been accepted is refused with the same answer."""

    async def handle(connection: Request | WebSocket, error: Exception) -> JSONResponse | None:
        if isinstance(error, Problem):  # without a thread: these are many, and quickly made
            answered = form(connection.scope, answer(error.kind, error.text, error.problems, error.headers))
            if error.kind in _TOO_MUCH:
                await asyncio.sleep(_PAUSE)
        else:
            answered = form(connection.scope, await run_in_threadpool(handler, connection, error))
        if not isinstance(connection, WebSocket):
            return answered
        if connection.application_state == WebSocketState.CONNECTING:
            await connection.send_denial_response(answered)
        else:
            await connection.close(_FAILED)
        return None

    return handle


def _http(request: Request, error: HTTPException) -> JSONResponse:
    if error.status_code == 405:
        detail = "this method is not served at this path"
        return answer(problems.METHOD_NOT_ALLOWED, detail, headers={"Allow": _methods_at(request)})
    kind = _BY_STATUS.get(error.status_code, problems.INVALID_REQUEST)
    detail = "nothing is served at this path" if error.status_code == 404 else str(error.detail)
    return answer(kind, detail, headers=error.headers)


def _methods_at(request: Request) -> str:
    """The value of ``Allow``: the methods of all routes at this path. Starlette names those of one route only."""
    routes = [route for route in request.app.routes if not isinstance(route, Mount)]  # files: of any path

    def served(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] == Match.FULL for route in routes)

    return ", ".join(method for method in _METHODS if served(method)) or "GET, HEAD"


_SECRETS = frozenset(["password", "current_password", "value", "session_token", "token", "link", "manifest"])
"""Keys of bodies whose values are never in an answer."""


def _validation(_: Request, error: RequestValidationError | WebSocketRequestValidationError) -> JSONResponse:
    found = [_field(detail) for detail in error.errors()[:_MOST]]
    return answer(problems.INVALID_REQUEST, "; ".join(f"{field.path}: {field.message}" for field in found), found)


def _field(error: dict[str, Any]) -> FieldProblem:
    where: Sequence[Any] = error.get("loc", ())
    path = ""
    for part in where:
        path += f"[{part}]" if isinstance(part, int) else f"{'.' if path else ''}{clean(str(part))[:80]}"
    # The value is shown if it is short and no part of it can be a secret: a misspelt `password` is an unknown key.
    value = error.get("input")
    secret = error.get("type") == "extra_forbidden" or not _SECRETS.isdisjoint(where)
    shown = clean(repr(value))[:100] if isinstance(value, str | int | float | bool) and not secret else None
    return FieldProblem(path=path, message=clean(str(error.get("msg", "not valid")))[:300], found=shown)


def _manifest(_: Request, error: ManifestError) -> JSONResponse:
    found = [
        FieldProblem(
            path=problem.path,
            message=problem.message,
            line=problem.line,
            column=problem.column,
            found=problem.found,
            accepted=problem.accepted,
        )
        for problem in error.problems
    ]
    return answer(problems.INVALID_MANIFEST, str(error), found)


def _store(_: Request, error: StoreError) -> JSONResponse:
    # A refusal by a user's store is a Problem already. This is the installation's store: away, or misconfigured.
    log.warning("store", error=str(error), kind=error.kind)
    return answer(problems.STORE_UNAVAILABLE, str(error))


def _backup(_: Request, error: BackupRuns) -> JSONResponse:
    return answer(problems.CONFLICT, str(error))


def _data(_: Request, error: DataError) -> JSONResponse:
    # The value is one that Postgres can't store, such as text with a NUL character.
    log.info("value refused by the database", error=str(error.orig))
    return answer(problems.INVALID_REQUEST, "a value holds something that can't be stored, such as a NUL character")


def _database(_: Request, error: Exception) -> JSONResponse:
    log.warning("database", error=str(getattr(error, "orig", error)).splitlines()[0])
    return answer(problems.DATABASE_UNAVAILABLE, "the database does not answer; try again in a moment")


def _dbapi(request: Request, error: DBAPIError) -> JSONResponse:
    if error.connection_invalidated:
        return _database(request, error)
    return _unexpected(request, error)


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    request_id = getattr(request.state, "request_id", "")
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        log.error("disk full", request_id=request_id)
        return answer(problems.STORE_UNAVAILABLE, "the server's disk is full")
    log.error("unexpected", request_id=request_id, exc_info=error)
    return answer(problems.INTERNAL, f"it is in the server's log as request {request_id}")
