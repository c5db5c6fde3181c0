"""Errors as MLflow's clients know them: ``{error_code, message}``, with the codes of MLflow's protocol."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

from fastapi.responses import JSONResponse

from weft_api.http import problems
from weft_api.http.problems import NOT_FOUND, Problem

_PATHS = ("/api/2.0/", "/api/3.0/")
_CODES = {
    problems.UNAUTHENTICATED.code: ("UNAUTHENTICATED", 401),
    problems.FORBIDDEN.code: ("PERMISSION_DENIED", 403),
    problems.CROSS_SITE.code: ("PERMISSION_DENIED", 403),
    problems.STALE_ATTEMPT.code: ("PERMISSION_DENIED", 403),
    problems.NOT_FOUND.code: ("RESOURCE_DOES_NOT_EXIST", 404),
    problems.METHOD_NOT_ALLOWED.code: ("ENDPOINT_NOT_FOUND", 404),
    problems.EXISTS.code: ("RESOURCE_ALREADY_EXISTS", 400),
    problems.TOO_MANY_REQUESTS.code: ("REQUEST_LIMIT_EXCEEDED", 429),
    problems.NOT_SUPPORTED.code: ("NOT_IMPLEMENTED", 501),
    problems.INTERNAL.code: ("INTERNAL_ERROR", 500),
    problems.STORE_UNAVAILABLE.code: ("TEMPORARILY_UNAVAILABLE", 503),
    problems.DATABASE_UNAVAILABLE.code: ("TEMPORARILY_UNAVAILABLE", 503),
}
_MOVED = frozenset({"content-length", "content-type"})


def in_mlflows_form(scope: MutableMapping[str, Any], answered: JSONResponse) -> JSONResponse:
    """The answer to a request of MLflow's API in its form; to any other as it is."""
    if not scope["path"].startswith(_PATHS):
        return answered
    problem = json.loads(bytes(answered.body))
    code, status = _CODES.get(problem["code"], ("INVALID_PARAMETER_VALUE", problem["status"]))
    headers = {name: value for name, value in answered.headers.items() if name not in _MOVED}
    return JSONResponse({"error_code": code, "message": problem["detail"]}, status, headers)


def no_run(run_id: str) -> Problem:
    return Problem(NOT_FOUND, f"Run with id={run_id[:100]} not found")


def no_model(model_id: str) -> Problem:
    return Problem(NOT_FOUND, f"Logged model with ID '{model_id[:100]}' not found.")
