"""``python -m weft_api``: the API as a process."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until `collect_again`

import weft_core.libraries  # noqa: F401  (before all that imports the two)

# isort: split

import errno
import os
import socket
import sys

import structlog
import uvicorn
from pydantic import ValidationError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from weft_api.app import create_app
from weft_api.context import Context
from weft_api.http.patience import PatientProtocol
from weft_api.jobs.ends import ENDS
from weft_api.streaming.tunnels import TUNNELS
from weft_core.processes import collect_again, few_arenas, many_files, name_process, return_memory
from weft_core.service_log import configure_logging
from weft_core.settings import Settings, load_settings
from weft_core.settings_problems import settings_problems
from weft_core.store.database import Database

NAME = "weft-api"
"""Of this process, for `ps` and `top`."""
_BACKLOG = 2048
_WEBSOCKET_MESSAGE = 65_536  # bytes, of a tunnel's frame; nothing else that comes by WebSocket is read
_WEBSOCKET_SILENCE = 120.0  # seconds without an answer to a ping
_SHUTDOWN = 5  # seconds for requests in progress; followers get the news at once
_IDLE = 75
"""Seconds until an idle connection is closed. The pauses of learners are shorter, so they need no connection for each
report. So are the 60 s for which proxies keep theirs idle, so they send no request into one that is being closed."""


class _Server(uvicorn.Server):
    """Answers the requests that it holds back before it waits for requests under way."""

    def __init__(self, config: uvicorn.Config, context: Context) -> None:
        super().__init__(config)
        self._context = context

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        TUNNELS.of(self._context).release()
        ENDS.of(self._context).release()
        await super().shutdown(sockets)


def main() -> int:
    """Serve until a signal ends the process. Returns the exit status: 0, or 2 for a problem that the operator has to
    fix."""
    name_process(NAME)
    collect_again()
    few_arenas()
    many_files()
    try:
        settings = load_settings()
        app = create_app(settings)
    except ValidationError as error:
        return _fail("settings: " + "; ".join(settings_problems(error)))
    except (ValueError, OSError) as error:
        return _fail(f"settings: {error}")
    problem = _database_problem(settings)
    if problem:
        return _fail(problem)
    try:
        listener = _listen(settings.api.host, settings.api.port)
    except OSError as error:
        return _fail(_listen_problem(settings, error))
    configure_logging()
    return_memory()
    structlog.get_logger("weft.api").info("serving", host=settings.api.host, port=listener.getsockname()[1])
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_SHUTDOWN,
            timeout_keep_alive=_IDLE,
            server_header=False,
            proxy_headers=True,
            # Not uvicorn's default, which trusts this machine: any of its users could then name another address in
            # each request, and try passwords without limit.
            forwarded_allow_ips=os.environ.get("FORWARDED_ALLOW_IPS", ""),
            http=PatientProtocol,
            # Deflating costs 300 KB a connection.
            ws_max_size=_WEBSOCKET_MESSAGE,
            ws_per_message_deflate=False,
            # Pings keep proxies from closing a connection. A client that is slow to answer is alive.
            ws_ping_timeout=_WEBSOCKET_SILENCE,
        ),
        app.state.context,
    )
    server.run(sockets=[listener])
    return 0


def _fail(message: str) -> int:
    print(f"weft api: {message}", file=sys.stderr)
    return 2


def _database_problem(settings: Settings) -> str | None:
    """Why the database can't be used, in one line; the URL's password is not in it."""
    try:
        database = Database(settings.database_url.get_secret_value(), pool_size=1)
        with database.transaction() as session:
            if session.scalar(text("select to_regclass('jobs')")) is None:
                return "the database has no tables yet: run `python -m weft_core.store.migrate`"
        database.close()
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        return f"can't reach Postgres (database_url): {reason}"
    return None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _listen_problem(settings: Settings, error: OSError) -> str:
    where = f"{settings.api.host}:{settings.api.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is taken by another process: stop it, or set WEFT_API__PORT to a free port"
    return f"can't listen at {where} (api.host, api.port): {error.strerror or error}"


if __name__ == "__main__":
    sys.exit(main())
