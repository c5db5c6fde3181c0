"""``python -m weft_api``: starts, stops in order, and reports problems of its surroundings in one line."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from tests.api.conftest import Person
from websockets.sync.client import connect

from weft_api.__main__ import main
from weft_core.settings import Settings

pytestmark = pytest.mark.slow


def _environment(settings: Settings, port: int, **changes: str) -> dict[str, str]:
    s3 = settings.s3
    return os.environ | {
        "WEFT_DATABASE_URL": settings.database_url.get_secret_value(),
        "WEFT_REDIS_URL": settings.redis_url.get_secret_value(),
        "WEFT_SECRET_KEYS": settings.secret_keys[0].get_secret_value(),
        "WEFT_S3__ENDPOINT": s3.endpoint,
        "WEFT_S3__ACCESS_KEY": s3.access_key,
        "WEFT_S3__SECRET_KEY": s3.secret_key.get_secret_value(),
        "WEFT_S3__BUCKET": s3.bucket,
        "WEFT_API__PORT": str(port),
        **changes,
    }


class Served:
    """``python -m weft_api`` on a port that the kernel chooses, and its log."""

    def __init__(self, settings: Settings, folder: Path, **changes: str) -> None:
        self._log = folder / "api.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "weft_api"], env=_environment(settings, 0, **changes), stderr=log
            )
        while not (serving := [line for line in self.log() if line["event"] == "serving"]):
            assert self.process.poll() is None, self._log.read_text()
            time.sleep(0.05)
        self.address = f"127.0.0.1:{serving[0]['port']}"

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture
def served(api_settings: Settings, tmp_path: Path) -> Iterator[Served]:
    made = Served(api_settings, tmp_path)
    yield made
    made.process.kill()
    made.process.wait()


class Start:
    """Starts that fail, in this process: what they say on standard error is one line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def refused(self, environment: dict[str, str]) -> str:
        for name, value in environment.items():
            self._monkeypatch.setenv(name, value)
        self._capsys.readouterr()
        assert main() == 2
        (line,) = self._capsys.readouterr().err.strip().splitlines()
        return line


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Start:
    return Start(monkeypatch, capsys)


def test_it_serves_and_stops_in_order(api_settings: Settings, served: Served) -> None:
    with httpx.Client(base_url=f"http://{served.address}", timeout=300) as http:
        # A busy machine's store may take longer once than readiness waits for it.
        while http.get("/readyz").json()["status"] != "ready":
            time.sleep(0.05)
        assert http.get("/api/v1/me").status_code == 401
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(300) in (0, -signal.SIGTERM)
    assert {"serving", "request"} <= {line["event"] for line in served.log()}
    assert api_settings.s3.secret_key.get_secret_value() not in json.dumps(served.log())


def test_an_idle_connection_stays_open(served: Served) -> None:
    """A learner that pauses, or a proxy, need not connect again for its next request."""
    with closing(HTTPConnection(served.address)) as connection:
        for pause in (0, 11):  # the longest pause of a learner is 10 s
            time.sleep(pause)
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200


def test_followers_do_not_keep_it_from_stopping(ann: Person, served: Served) -> None:
    job = ann.submit()
    logs = f"/api/v1/jobs/{job['id']}/logs"
    with httpx.Client(base_url=f"http://{served.address}", headers=dict(ann.http.headers), timeout=300) as http:
        follower = connect(
            f"ws://{served.address}{logs}/ws",
            additional_headers={"Authorization": f"Bearer {ann.token}"},
            proxy=None,
            open_timeout=300,
        )
        with http.stream("GET", f"{logs}/follow") as response, follower:
            assert next(response.iter_lines()).startswith("event: ")
            assert follower.recv(60)
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(300) in (0, -signal.SIGTERM)
    (line,) = [entry for entry in served.log() if entry.get("path", "").endswith("/follow")]
    assert (line["job"], line["attempt"]) == (job["id"], 0)
    assert line["request_id"] == response.headers["x-request-id"]


def test_requests_that_it_holds_are_answered_when_it_stops(ann: Person, served: Served) -> None:
    job = ann.submit()
    held = f"http://{served.address}/api/v1/jobs/{job['id']}/end?wait=30"
    with httpx.stream("GET", held, headers=dict(ann.http.headers), timeout=120) as response:
        served.process.send_signal(signal.SIGTERM)
        assert json.loads(response.read())["ended"] is False
    assert served.process.wait(300) in (0, -signal.SIGTERM)


def test_it_may_have_as_many_connections_as_the_kernel_permits(api_settings: Settings, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        made = Served(api_settings, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        assert resource.prlimit(made.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        made.process.kill()
        made.process.wait()


def test_a_taken_port(api_settings: Settings, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        line = start.refused(_environment(api_settings, port))
    assert f"127.0.0.1:{port} is taken by another process" in line
    assert "WEFT_API__PORT" in line


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"WEFT_DATABASE_URL": "postgresql://someone:hunter2@127.0.0.1:9/none"}, "can't reach Postgres"),
        ({"WEFT_DATABASE_URL": "nonsense"}, "database_url"),
        ({"WEFT_REDIS_URL": "nonsense"}, "redis_url"),
        ({"WEFT_S3__ENDPOINT": "nonsense"}, "s3"),
        ({"WEFT_SECRET_KEYS": ""}, "secret_keys"),
        ({"WEFT_SECRET_KEYS": "hunter2"}, "secret_keys"),
        ({"WEFT_API__PORT": "many"}, "api.port"),
        ({"WEFT_API__HOST": "256.1.1.1"}, "api.host"),
        ({"WEFT_API__NO_SUCH": "x"}, "no_such"),
        ({"WEFT_DEFAULT_ENGINE": "moon"}, "moon"),
    ],
)
def test_wrong_settings(api_settings: Settings, start: Start, changes: dict[str, str], said: str) -> None:
    line = start.refused(_environment(api_settings, 1, **changes))
    assert line.startswith("weft api: ")
    assert said in line
    assert "hunter2" not in line


@pytest.mark.parametrize(("trusted", "answers"), [("", [401] * 10 + [429] * 2), ("127.0.0.1", [401] * 12)])
def test_who_may_name_the_address_of_a_client(
    api_settings: Settings, tmp_path: Path, trusted: str, answers: list[int]
) -> None:
    """Wrong passwords are counted by the true address, unless the administrator trusts the proxy."""
    served = Served(api_settings, tmp_path, FORWARDED_ALLOW_IPS=trusted)
    with redis.Redis.from_url(api_settings.redis_url.get_secret_value()) as counters:
        counters.flushall()  # other tests' tries from this address
    try:
        with httpx.Client(base_url=f"http://{served.address}", timeout=300) as http:
            body = {"user": f"nobody{trusted}", "password": "wrong"}
            tried = [
                http.post("/api/v1/login", json=body, headers={"X-Forwarded-For": f"192.0.2.{number}"}).status_code
                for number in range(12)
            ]
            https = http.get("/healthz", headers={"X-Forwarded-Proto": "https"})
    finally:
        served.process.kill()
        served.process.wait()
    assert tried == answers
    assert ("strict-transport-security" in https.headers) == bool(trusted)
