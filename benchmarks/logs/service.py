"""The measured service: servers, API processes, and jobs with simulated learners."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from cryptography.fernet import Fernet
from pydantic import SecretStr
from tests.api.conftest import Api, Attempted, Person
from tests.servers import Servers

import weft
from weft_api.app import make_context
from weft_core.engine_settings import LocalSettings
from weft_core.settings import LimitSettings, Settings
from weft_embedded.servers import PostgresServer

_MANY = 1 << 40
_PATIENCE = 60.0


class DurableServers(Servers):
    """As those of the tests, but Postgres is as careful as in use."""

    @cached_property
    def postgres(self) -> PostgresServer:
        server = PostgresServer(self.folder / "postgres", self.folder, self.folder, self.folder / "postgres.log")
        server.start()
        return server


class ApiProcess:
    """One `python -m weft_api`, which may be killed and started again at its port."""

    def __init__(self, settings: Settings, log: Path) -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            self.port: int = holder.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        s3 = settings.s3
        limits = {
            f"WEFT_LIMITS__{name.upper()}": str(value)
            for name, value in settings.limits.model_dump().items()
            if value == _MANY
        }
        self._environment = os.environ | {
            "WEFT_DATABASE_URL": settings.database_url.get_secret_value(),
            "WEFT_REDIS_URL": settings.redis_url.get_secret_value(),
            "WEFT_SECRET_KEYS": settings.secret_keys[0].get_secret_value(),
            "WEFT_S3__ENDPOINT": s3.endpoint,
            "WEFT_S3__ACCESS_KEY": s3.access_key,
            "WEFT_S3__SECRET_KEY": s3.secret_key.get_secret_value(),
            "WEFT_S3__BUCKET": s3.bucket,
            "WEFT_API__PORT": str(self.port),
            **limits,
        }
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "weft_api"], env=self._environment, stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Until it answers."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/readyz").is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"the API did not start: {self._log.read_text()[-2000:]}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Remote(Api):
    """The tests' people and attempts, at API processes."""

    def __init__(self, settings: Settings, url: str) -> None:
        self.settings = settings
        self.context = make_context(settings)
        self.url = url
        self._clients: list[httpx.Client] = []

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        asyncio.run(self.context.close())


class Service:
    """``apis`` run, any number of them from the first on may be used."""

    def __init__(self, folder: Path, apis: int = 2) -> None:
        self.servers = DurableServers()
        self._database = self.servers.database_url()
        self.settings = Settings(
            database_url=SecretStr(self._database.__enter__()),
            redis_url=SecretStr(self.servers.redis.url),
            secret_keys=[SecretStr(Fernet.generate_key().decode())],
            s3=self.servers.bucket(),
            engines={"local": LocalSettings()},
            limits=LimitSettings(
                log_bytes_per_job=_MANY,
                log_lines_per_second=_MANY,
                log_bytes_per_second=_MANY,
                metric_points_per_job=_MANY,
                metric_bytes_per_job=_MANY,
            ),
        )
        self.apis = [ApiProcess(self.settings, folder / f"api-{number}.log") for number in range(apis)]
        for api in self.apis:
            api.start()
        for api in self.apis:
            api.wait()
        self.remote = Remote(self.settings, self.apis[0].url)
        self.person: Person = self.remote.person()

    def stop(self) -> None:
        for api in self.apis:
            api.kill()
        self.remote.stop()
        self.servers.stop()

    def attempt(self, learners: int) -> Attempted:
        """A job with an open attempt, as the workers would have opened it."""
        job = self.person.submit(set={"learners": str(learners)})
        return self.remote.attempt(job["id"])

    def end(self, attempt: Attempted) -> None:
        self.remote.end_attempt(attempt)
        for state in ("PENDING", "PROCESSING", "COMPLETED"):
            self.remote.set_state(attempt.job_id, state)

    def client(self, api: int = 0) -> weft.Client:
        return weft.Client(self.apis[api].url, self.person.token)


@contextmanager
def running(folder: Path) -> Iterator[Service]:
    service = Service(folder)
    try:
        yield service
    finally:
        service.stop()


class _Simulated:
    """Clients in a process of their own, which talks in lines of JSON."""

    def __init__(self, module: str, order: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._say(order)
        if self._hear() != "ready":
            raise RuntimeError(f"{module} did not start")

    def go(self) -> None:
        self._say("go")

    def _result(self) -> Any:
        found = self._hear()
        self._process.wait()
        return found

    def _say(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline() or "null")


class Learners(_Simulated):
    """Simulated learners: see learners.py for what ``how`` says. They are all connected and have their start grants;
    ``go`` lets them write.

    Args:
        urls: of the API; the first of learner k is number k modulo how many there are.
    """

    def __init__(self, urls: Sequence[str], learners: Sequence[tuple[str, int]], **how: Any) -> None:
        super().__init__("benchmarks.logs.learners", {"urls": list(urls), "learners": list(learners), **how})

    def result(self) -> list[int]:
        """The number of lines of each that have been taken in."""
        found: list[int] = self._result()
        return found


class Crowd(_Simulated):
    """Simulated followers, who all follow. ``go`` says that the jobs have ended.

    Args:
        followers: token and job of each.
    """

    def __init__(self, url: str, followers: Sequence[tuple[str, str]]) -> None:
        super().__init__("benchmarks.logs.crowd", {"url": url, "followers": list(followers)})

    def result(self) -> list[dict[str, Any]]:
        """What each has got: ``ended``, ``numbers`` and ``ages``."""
        found: list[dict[str, Any]] = self._result()
        return found


def room_for(size: int, folder: Path) -> bool:
    """Whether the disk has so many bytes to spare."""
    return shutil.disk_usage(folder).free > size
