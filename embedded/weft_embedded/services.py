"""The API and the worker as parts: our own packages, started as processes and known by their commands only."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from weft_embedded import probe
from weft_embedded.part import Part


class Service(Part):
    """``python -m MODULE``."""

    module: str

    def __init__(self, environment: Mapping[str, str], run: Path, log: Path) -> None:
        super().__init__(run, log)
        self._environment = dict(environment)

    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module]

    def environment(self) -> dict[str, str]:
        return self._environment


class ApiService(Service):
    """The HTTP API.

    Args:
        url: where it answers on this machine.
    """

    name = "api"
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
    """The Celery worker with its sweeper. It listens nowhere, so being alive is its health."""

    name = "worker"
    module = "weft_workers"
    stop_grace = 15.0  # a step that is under way may end

    def health(self) -> str | None:
        return None if self.pid is not None else "not running"
