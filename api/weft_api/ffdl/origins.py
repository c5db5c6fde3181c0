"""Pages of other sites that may use FfDL's API from a browser, as FfDL's own does: setting ``api.ffdl_origins``."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from weft_api.ffdl.errors import is_ffdls

_METHODS = ("GET", "POST", "PATCH", "DELETE")
_SENT = ("Authorization", "X-Watson-Userinfo", "X-Watson-Authorization-Token", "Content-Type", "Idempotency-Key")
_READ = ("Location", "Content-Disposition", "Retry-After", "X-Request-ID")


class Origins:
    """CORS for FfDL's paths alone. A page signs in with headers of its own, so that credentials that the browser keeps
    (cookies, a password typed once) are never asked for: no ``Access-Control-Allow-Credentials``."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._cors = CORSMiddleware(
            app, allow_origins=origins, allow_methods=_METHODS, allow_headers=_SENT, expose_headers=_READ, max_age=600
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = scope["type"] == "http" and is_ffdls(scope["path"])
        await (self._cors if served else self._app)(scope, receive, send)
