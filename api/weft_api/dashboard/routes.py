"""Serving the dashboard: one page for every URL that is no part of the API, and its assets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Match, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

BUILT: Final = Path(__file__).parent / "static"

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""No inline script or style, nothing from elsewhere: the output of a user's program can't become part of the page."""

SHELL_CSP: Final = CSP.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
"""Of the document with the terminal, which writes style sheets as it runs."""

_SHELL: Final = re.compile(r"/jobs/[^/]+/shell/\d+")

_NOT_PAGES: Final = ("api", "v1", "docs", "assets", "healthz", "readyz", "metrics", "openapi.json")

_MISSING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Weft</title></head>
<body><h1>The dashboard is not built</h1>
<p>In Weft's sources, <code>make dashboard</code> builds it; then reload this page. The installed package and the
images have it.</p>
<p>The command line works without it: <code>weft list</code>. So does the API: <a href="/docs">/docs</a>.</p>
</body></html>
"""


def install(app: FastAPI, built: Path = BUILT) -> None:
    """Serve the dashboard that lies in ``built``. To be called last: it answers what nothing else answers."""
    app.mount("/assets", _Assets(directory=built / "assets", check_dir=False), name="dashboard-assets")

    async def page(request: Request) -> Response:
        name, policy = ("shell.html", SHELL_CSP) if _SHELL.fullmatch(request.url.path) else ("index.html", CSP)
        document = built / name
        if not document.is_file():
            return HTMLResponse(_MISSING, 503)
        return FileResponse(document, headers={"Content-Security-Policy": policy, "Cache-Control": "no-cache"})

    app.router.routes.append(_Pages("/{path:path}", page, include_in_schema=False))


class _Pages(Route):
    """The paths that a browser opens as pages. An unknown path of the API stays a 404 that a program can read."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return Match.NONE, {}
        path: str = scope["path"]
        navigates = "text/html" in Headers(scope=scope).get("accept", "")
        if path != "/" and (not navigates or path.split("/")[1] in _NOT_PAGES):
            return Match.NONE, {}
        return super().matches(scope)


class _Assets(StaticFiles):
    """Files whose names contain the hash of their content: cached for good, and sent compressed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if isinstance(response, FileResponse) and "gzip" in Headers(scope=scope).get("accept-encoding", ""):
            packed = Path(f"{response.path}.gz")
            if packed.is_file():
                response = FileResponse(packed, media_type=response.media_type, headers={"Content-Encoding": "gzip"})
        response.headers["Vary"] = "Accept-Encoding"
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response
