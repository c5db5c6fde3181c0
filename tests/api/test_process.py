"""``python -m weft_api``: starts, stops in order, and says in one line what is wrong with its surroundings."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from tests.api.conftest import Api, Person
from websockets.sync.client import connect

from weft_api.__main__ import main
from weft_core.settings import Settings


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


@contextmanager
def _free_port() -> Iterator[tuple[int, socket.socket]]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1], holder


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


def test_it_serves_and_stops_in_order(api_settings: Settings) -> None:
    with _free_port() as (port, _):
        pass
    process = subprocess.Popen(
        [sys.executable, "-m", "weft_api"],
        env=_environment(api_settings, port),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while True:
            assert process.poll() is None, process.stderr
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}/readyz")
                break
            except httpx.ConnectError:
                time.sleep(0.05)
        assert answer.json()["status"] == "ready"
        assert httpx.get(f"http://127.0.0.1:{port}/api/v1/me").status_code == 401
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    assert process.returncode in (0, -signal.SIGTERM)
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"serving", "request"} <= {line["event"] for line in lines}
    secret = api_settings.s3.secret_key.get_secret_value()
    assert secret not in log


def test_followers_do_not_keep_it_from_stopping(api: Api, ann: Person) -> None:
    job = ann.submit()
    with _free_port() as (port, _):
        pass
    process = subprocess.Popen(
        [sys.executable, "-m", "weft_api"], env=_environment(api.settings, port), stderr=subprocess.PIPE, text=True
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=dict(ann.http.headers), timeout=30) as http:
            while True:
                try:
                    http.get("/healthz")
                    break
                except httpx.ConnectError:
                    time.sleep(0.05)
            logs = f"/api/v1/jobs/{job['id']}/logs"
            follower = connect(
                f"ws://127.0.0.1:{port}{logs}/ws",
                additional_headers={"Authorization": f"Bearer {ann.token}"},
                proxy=None,
            )
            with http.stream("GET", f"{logs}/follow") as response, follower:
                assert next(response.iter_lines()).startswith("event: ")
                assert follower.recv(15)
                process.send_signal(signal.SIGTERM)
                assert process.wait(15) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        _, log = process.communicate(timeout=30)
    (line,) = [one for one in map(json.loads, log.splitlines()) if one.get("path", "").endswith("/follow")]
    assert (line["job"], line["attempt"]) == (job["id"], 0)
    assert line["request_id"] == response.headers["x-request-id"]


def test_a_taken_port(api_settings: Settings, start: Start) -> None:
    with _free_port() as (port, holder):
        holder.listen()
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
