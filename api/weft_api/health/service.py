"""Whether the servers that this process needs answer."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from weft_api.context import Context
from weft_api.storage.checker import CHECKER
from weft_core import __version__
from weft_core.objects import StoreError


class Health(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ok", "version": __version__}]})

    status: str
    version: str


class Readiness(BaseModel):
    """``ready``: the server can serve every request. ``degraded``: it can, but not always promptly, because Redis does
    not answer. ``unavailable``: Postgres or the object store does not answer."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"status": "ready", "checks": {"postgres": "ok", "s3": "ok", "redis": "ok"}}]}
    )

    status: str
    checks: dict[str, str] = Field(description="For each server, `ok` or the problem.")


def readiness(context: Context) -> Readiness:
    checks = {"postgres": "ok", "s3": "ok", "redis": "ok"}
    try:
        with context.database.transaction() as session:
            session.execute(text("select 1"))
    except SQLAlchemyError:
        checks["postgres"] = "does not answer"
    try:
        CHECKER.of(context).within_patience(context.objects.check)
    except StoreError as error:
        checks["s3"] = str(error)
    if not context.wake.ping():
        checks["redis"] = "does not answer (jobs and logs go on, more slowly)"
    if checks["postgres"] != "ok" or checks["s3"] != "ok":
        return Readiness(status="unavailable", checks=checks)
    return Readiness(status="ready" if checks["redis"] == "ok" else "degraded", checks=checks)
