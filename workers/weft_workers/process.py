"""The start of the worker's processes, none of which outlives its parent."""

from __future__ import annotations

import time

import redis
import structlog
from pydantic import ValidationError
from sqlalchemy.exc import ArgumentError, DBAPIError

from weft_core.settings import Settings, load_settings
from weft_core.settings_problems import settings_problems
from weft_core.store.database import Database
from weft_core.wake import client_url
from weft_workers.context import Context, make_context, read_installation
from weft_workers.engines import build

log = structlog.get_logger(__name__)


class BadSettings(Exception):
    """Raised with one readable line a problem."""


def read_settings() -> Settings:
    """The settings of this process. Raises BadSettings."""
    try:
        return load_settings()
    except ValidationError as error:
        raise BadSettings("\n".join(settings_problems(error))) from None
    except (ValueError, OSError) as error:  # a weft.toml that is no TOML, or unreadable
        raise BadSettings(f"settings: {error}") from None


def wait_for_installation(settings: Settings, seconds: float = float("inf")) -> str:
    """This installation's id; waits for a database that is still to come up, or to be migrated.

    Raises:
        BadSettings: ``database_url`` is no URL of a Postgres.
        TimeoutError: it did not within ``seconds``.
    """
    end, said = time.monotonic() + seconds, ""
    while True:
        try:
            database = Database(settings.database_url.get_secret_value(), pool_size=1)
        except (ArgumentError, ImportError):
            # Without the value found, which may hold a password.
            raise BadSettings("database_url: is not of the form postgresql://user:password@host/database") from None
        try:
            return read_installation(database)
        except LookupError as error:
            problem = str(error)
        except DBAPIError as error:
            problem = str(error.orig).strip().partition("\n")[0]
        finally:
            database.close()
        if time.monotonic() > end:
            raise TimeoutError(problem)
        if problem != said:
            log.warning("waiting for the database", problem=problem)
            said = problem
        time.sleep(1)


def open_context(settings: Settings, installation: str, connections: int) -> Context:
    """This process's context. Raises BadSettings."""
    try:
        redis.ConnectionPool.from_url(client_url(settings.redis_url.get_secret_value()))
    except ValueError as error:
        raise BadSettings(f"redis_url: {error}") from None
    try:
        return make_context(settings, installation, build(settings, installation), connections=connections)
    except ValueError as error:
        raise BadSettings(str(error)) from None
