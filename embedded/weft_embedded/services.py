"""The API and the worker as parts: our own packages, started as processes and known by their commands only."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import psycopg

from weft_embedded import probe
from weft_embedded.fork_server import ForkServer
from weft_embedded.part import Part, Process

_OBSERVED = "select 1 from engines where seen_at > now() - make_interval(secs => %s) or unreachable_since is not null"


class Service(Part):
    """``python -m MODULE``."""

    module: str
    refusal = 2
    fork_server: ForkServer | None = None
    """Starts it, as long as there is one."""

    def __init__(self, environment: Mapping[str, str], run: Path, log: Path) -> None:
        super().__init__(run, log)
        self._environment = dict(environment)

    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module]

    def begin(self, environment: Mapping[str, str], output: IO[bytes]) -> Process:
        child = None
        if self.fork_server is not None:
            log = output.fileno()
            module = f"{self.module}.__main__"
            child = self.fork_server.fork(module, [], environment, self.folder(), self.stop_signal, log, log)
        return child or super().begin(environment, output)

    def environment(self) -> dict[str, str]:
        return self._environment


class ApiService(Service):
    """The HTTP API.

    Args:
        url: where it answers on this machine.
    """

    name = "api"
    label = "the API"
    module = "weft_api"
    stop_grace = 8.0  # followers of logs are cut off, requests may end

    def __init__(self, url: str, environment: Mapping[str, str], run: Path, log: Path) -> None:
        super().__init__(environment, run, log)
        self._url = url

    def health(self) -> str | None:
        try:
            status, _ = probe.http_get(f"{self._url}/healthz")
        except OSError as error:
            return str(error) or type(error).__name__
        return None if status == 200 else f"HTTP {status} of /healthz"


class WorkerService(Service):
    """The Celery worker with its sweeper. It listens nowhere: it is up when it has observed an engine.

    Args:
        database_url: the database in which the workers record their observations, as libpq takes it.
    """

    name = "worker"
    label = "the worker"
    module = "weft_workers"
    stop_grace = 15.0  # a step that is under way may end

    def __init__(self, database_url: str, environment: Mapping[str, str], run: Path, log: Path) -> None:
        super().__init__(environment, run, log)
        self._database_url = database_url
        self._works: int | None = None  # pid of the one that has been seen to work

    def health(self) -> str | None:
        pid = self.pid
        if pid is None:
            return "not running"
        if self._works != pid:
            age = time.monotonic() - self.started
            try:
                with psycopg.connect(self._database_url, connect_timeout=30) as connection:
                    if connection.execute(_OBSERVED, [age]).fetchone() is None:
                        return "has not looked at its engines yet"
            except psycopg.Error as error:
                return str(error).strip()
            self._works = pid
        return None
