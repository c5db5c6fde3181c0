"""The API's own documentation: the OpenAPI document, and Swagger UI from the installed bundle (no CDN)."""

from __future__ import annotations

import copy
import functools
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles
from swagger_ui_bundle import swagger_ui_path  # type: ignore[import-untyped]

from weft_api.http.problems import (
    INTERNAL,
    INVALID_REQUEST,
    TOO_LARGE,
    TOO_MANY_REQUESTS,
    UNAUTHENTICATED,
    ProblemBody,
    responses,
)
from weft_api.jobs.schemas import SubmitBody
from weft_api.learner.schemas import HeartbeatCall, ReportCall
from weft_api.logs.schemas import LogsCall
from weft_api.metrics.schemas import MetricsCall

_CSP = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><title>Weft API</title>
<link rel="stylesheet" href="docs/static/swagger-ui.css">
<link rel="icon" type="image/png" href="docs/static/favicon-16x16.png">
</head>
<body><div id="swagger-ui"></div>
<script src="docs/static/swagger-ui-bundle.js"></script><script src="docs/start.js"></script>
</body>
</html>
"""
_START = """window.onload = () => { window.ui = SwaggerUIBundle({
  url: "docs/openapi.json", dom_id: "#swagger-ui", deepLinking: true, persistAuthorization: false, validatorUrl: null,
}); };
"""
_TAGS = (
    "jobs",
    "tunnels",
    "sweeps",
    "schedules",
    "views",
    "code",
    "logs",
    "metrics",
    "events",
    "files",
    "models",
    "datastores",
    "secrets",
    "sessions",
    "tokens",
    "users",
    "projects",
    "audit",
    "engines",
    "identity",
    "learner",
    "health",
)


def install(app: FastAPI) -> None:
    """Serve ``/docs``, and make ``/openapi.json`` say what the API really answers."""
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    # Cached like other static files, which change only with a release.
    app.mount("/docs/static", StaticFiles(directory=swagger_ui_path), name="docs-static")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(_PAGE, headers={"Content-Security-Policy": _CSP})

    @app.get("/docs/start.js", include_in_schema=False)
    async def start() -> Response:
        return Response(_START, media_type="text/javascript")

    @app.get("/docs/openapi.json", include_in_schema=False)
    async def document() -> Response:
        return Response(older(), media_type="application/json")

    @functools.cache
    def older() -> bytes:
        return bytes(JSONResponse(_as_3_0(_openapi(app))).body)


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(
        title="Weft",
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=[{"name": name} for name in _TAGS],
    )
    schemas = document["components"]["schemas"]
    for model in (ProblemBody, SubmitBody, HeartbeatCall, LogsCall, MetricsCall, ReportCall):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[schema["title"]] = schema
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _true_answers(operation, signed_in="security" in operation)
            if path.startswith("/api/v1/learner/"):
                operation["security"] = [{"attempt": []}]
    schemes = document["components"].setdefault("securitySchemes", {})
    schemes["attempt"] = {"type": "http", "scheme": "bearer", "description": "The token of an attempt."}
    app.openapi_schema = document
    return document


def _true_answers(operation: dict[str, Any], signed_in: bool) -> None:
    """FastAPI assumes a 422 of its own form for bad input; ours is a 400 problem."""
    answers = operation["responses"]
    answers.pop("422", None)
    general = [INVALID_REQUEST, INTERNAL] + ([UNAUTHENTICATED, TOO_MANY_REQUESTS] if signed_in else [])
    if "requestBody" in operation:
        general += [TOO_LARGE]
    for status, answer in responses(*general).items():
        have = answers.setdefault(str(status), answer)
        if have is not answer:
            for media, content in answer["content"].items():
                have["content"][media]["examples"] |= content["examples"]
    operation["responses"] = dict(sorted(answers.items()))


def _as_3_0(document: dict[str, Any]) -> dict[str, Any]:
    """The document for a Swagger UI of version 4, which knows OpenAPI 3.0 only: null is a flag there, not a type."""
    older = copy.deepcopy(document)
    older["openapi"] = "3.0.3"
    _null_to_flag(older)
    return older


def _null_to_flag(node: Any) -> None:
    if isinstance(node, dict):
        options = node.get("anyOf")
        if isinstance(options, list) and {"type": "null"} in options:
            rest = [option for option in options if option != {"type": "null"}]
            del node["anyOf"]
            node.update(rest[0] if len(rest) == 1 else {"anyOf": rest})
            node["nullable"] = True
        for value in node.values():
            _null_to_flag(value)
    elif isinstance(node, list):
        for value in node:
            _null_to_flag(value)
