"""Errors as FfDL's clients know them: ``{code, error, description}``, with one of the statuses that they know."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

from fastapi.responses import JSONResponse

from weft_api.http import problems

_MOVED = frozenset({"content-length", "content-type", "www-authenticate"})


def is_ffdls(path: str) -> bool:
    return path in ("/v1", "/health") or path.startswith("/v1/")


def in_ffdls_form(scope: MutableMapping[str, Any], answered: JSONResponse) -> JSONResponse:
    """The answer to a request of FfDL's API in its form; to any other as it is."""
    if not is_ffdls(scope["path"]):
        return answered
    problem = json.loads(bytes(answered.body))
    status = _known(scope.get("method"), problem["code"], problem["status"])
    headers = {name: value for name, value in answered.headers.items() if name not in _MOVED}
    if status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="Weft"'
    body = {"code": status, "error": problem["title"], "description": problem["detail"]}
    return JSONResponse(body, status, headers)


def _known(method: str | None, code: str, status: int) -> int:
    """FfDL's client has words of its own for a 401 and a 404, and shows the number of a status that it does not know.
    Of a 400 it shows the text when it has uploaded, and nothing at all when it has not."""
    if method == "POST":
        shown = status in (403, 409, 413, 415, 429) or code == problems.STORE_UNAVAILABLE.code
        return 400 if shown else status
    if code == problems.NO_RESULTS_YET.code:
        return 404
    if code == problems.FORBIDDEN.code and method != "PATCH":
        return 401  # FfDL had no 403
    return status
