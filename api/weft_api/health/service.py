"""Whether the servers that this process needs answer, and whether a caller may read its metrics."""

from __future__ import annotations

import hmac

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import HTTPConnection

from weft_api.access.auth import address_of, from_this_machine
from weft_api.context import Context
from weft_api.http.problems import FORBIDDEN, UNAUTHENTICATED, Problem
from weft_api.storage.checker import CHECKER
from weft_core import __version__
from weft_core.objects import StoreError

_ALL_WELL: dict[str, str] = {"postgres": "ok", "row_security": "ok", "s3": "ok", "redis": "ok"}
_PROXIES = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


class Health(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ok", "version": __version__}]})

    status: str
    version: str


class Readiness(BaseModel):
    """``ready``: the server can serve every request. ``degraded``: it can, but not always promptly, because Redis does
    not answer, or without row-level security. ``unavailable``: Postgres or the object store does not answer."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ready", "checks": {**_ALL_WELL}}]})

    status: str
    checks: dict[str, str] = Field(description="For each server, and for row-level security, `ok` or the problem.")


def require_scraper(context: Context, request: HTTPConnection, token: str) -> None:
    """Refuse a request for metrics by anyone but Prometheus.

    Without a token in the settings, that is this machine, as far as the address tells: a request that a proxy has
    passed on comes from elsewhere. A request through a Unix socket has no address, and is answered.

    Raises:
        Problem: unauthenticated, forbidden.
    """
    wanted = context.settings.telemetry.metrics_token.get_secret_value()
    if wanted:
        if not hmac.compare_digest(token.encode(), wanted.encode()):
            raise Problem(UNAUTHENTICATED, "metrics need the token of the setting telemetry.metrics_token")
        return
    passed_on = any(name in request.headers for name in _PROXIES)
    if passed_on or (address_of(request) and not from_this_machine(request)):
        raise Problem(
            FORBIDDEN, "metrics are answered to this machine only: set telemetry.metrics_token, and send it as a Bearer"
        )


def readiness(context: Context) -> Readiness:
    checks = dict(_ALL_WELL)
    try:
        with context.database.transaction() as session:
            walls = context.database.walls.again(session.connection())
        if walls.problem:
            checks["row_security"] = "not in force (the API's log says why)"
    except SQLAlchemyError:
        checks |= {"postgres": "does not answer", "row_security": "unknown, as Postgres does not answer"}
    try:
        CHECKER.of(context).within_patience(context.objects.check)
    except StoreError as error:
        checks["s3"] = str(error)
    if not context.wake.ping():
        checks["redis"] = "does not answer (jobs and logs go on, more slowly)"
    if checks["postgres"] != "ok" or checks["s3"] != "ok":
        return Readiness(status="unavailable", checks=checks)
    return Readiness(status="ready" if set(checks.values()) == {"ok"} else "degraded", checks=checks)
