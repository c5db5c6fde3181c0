"""Errors as FfDL's clients know them: ``{code, error, description}``, with one of the statuses that they know."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

from fastapi.responses import JSONResponse

from weft_api import problems

# FfDL's client shows the text of a 400, and knows 401, 404, 410 and 503 besides. Of anything else it shows a number.
_KNOWN = {
    problems.CONFLICT.code: 400,
    problems.EXISTS.code: 400,
    problems.IDEMPOTENCY_CONFLICT.code: 400,
    problems.TOO_LARGE.code: 400,
    problems.UNSUPPORTED_MEDIA.code: 400,
    problems.NO_RESULTS_YET.code: 404,
}
_MOVED = frozenset({"content-length", "content-type", "www-authenticate"})


def is_ffdls(path: str) -> bool:
    return path in ("/v1", "/health") or path.startswith("/v1/")


def in_ffdls_form(scope: MutableMapping[str, Any], answered: JSONResponse) -> JSONResponse:
    """The answer to a request of FfDL's API in its form; to any other as it is."""
    if not is_ffdls(scope["path"]):
        return answered
    problem = json.loads(bytes(answered.body))
    status = _KNOWN.get(problem["code"], problem["status"])
    if problem["code"] == problems.FORBIDDEN.code:
        # FfDL had no 403. A 400 is shown with its text, where the client knows one.
        status = 400 if scope.get("method") in ("POST", "PATCH") else 401
    headers = {name: value for name, value in answered.headers.items() if name not in _MOVED}
    if status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="Weft"'
    body = {"code": status, "error": problem["title"], "description": problem["detail"]}
    return JSONResponse(body, status, headers)
