"""Servers that are away: clear answers, nothing lost, nothing half done."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from sqlalchemy import select
from tests.api.conftest import HELLO, Api, Person, code_of, zipped
from tests.api.test_logs import finish, follow
from tests.servers import Servers

from weft_api.storage.checker import Checker
from weft_core.settings import Settings
from weft_core.store.models import CodeBundle

pytestmark = pytest.mark.slow

NOWHERE = "http://127.0.0.1:9"
_END = "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = %s"
"""With a time limit, Postgres waits for the ends: a connection that is about to end still looks sound to its client."""


@pytest.fixture
def without_s3(api_settings: Settings) -> Iterator[Api]:
    running = Api(api_settings.model_copy(update={"s3": api_settings.s3.model_copy(update={"endpoint": NOWHERE})}))
    yield running
    running.stop()


@pytest.fixture
def without_redis(api_settings: Settings) -> Iterator[Api]:
    running = Api(api_settings.model_copy(update={"redis_url": SecretStr("redis://127.0.0.1:9/0")}))
    yield running
    running.stop()


def test_s3_is_away(without_s3: Api) -> None:
    ann = without_s3.person()
    bundle = zipped(a__py="1")
    answers = [
        ann.http.post("/api/v1/jobs", data={"manifest": HELLO}, files={"code": bundle}),
        ann.http.put(f"/api/v1/code/{hashlib.sha256(bundle).hexdigest()}", content=bundle),
    ]
    job = ann.submit()  # without code it needs no store
    answers.append(ann.http.get(f"/api/v1/jobs/{job['id']}/files"))
    for answer in answers:
        assert (answer.status_code, code_of(answer)) == (503, "store_unavailable")
        assert int(answer.headers["retry-after"]) > 0
    assert len(ann.http.get("/api/v1/jobs").json()["jobs"]) == 1, "what has no code in the store is no job"
    with without_s3.context.database.transaction() as session:
        assert session.scalars(select(CodeBundle).where(CodeBundle.project_id == ann.project_id)).all() == []
    answer = ann.http.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    assert NOWHERE in answer.json()["checks"]["s3"]
    assert ann.http.get("/healthz").json()["status"] == "ok"


def test_s3_hangs(api_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A readiness check waits for an answer, though not as long as the store's clients do."""
    monkeypatch.setattr(Checker, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        s3 = api_settings.s3.model_copy(update={"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}"})
        api = Api(api_settings.model_copy(update={"s3": s3}))
        try:
            answer = httpx.get(f"{api.url}/readyz", timeout=300)
        finally:
            api.stop()
    assert answer.status_code == 503
    assert "did not answer" in answer.json()["checks"]["s3"]


def test_redis_is_away(without_redis: Api) -> None:
    ann = without_redis.person()
    attempt = without_redis.attempt(ann.submit()["id"])
    agent = attempt.agents[0]
    agent.start()
    agent.log(0, "one")

    def go_on() -> None:
        agent.log(1, "two")
        finish(without_redis, attempt)

    threading.Timer(0.2, go_on).start()
    found = follow(ann, attempt.job_id)
    assert [data["text"] for name, _, data in found if name == "line"] == ["one", "two"]
    assert found[-1][0] == "end"
    answer = ann.http.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")


def test_postgres_goes_away_and_comes_back(servers: Servers, api_settings: Settings) -> None:
    with servers.database_url() as url:
        api = Api(api_settings.model_copy(update={"database_url": SecretStr(url)}))
        try:
            _postgres_goes_away(servers, api)
        finally:
            api.stop()


def _postgres_goes_away(servers: Servers, api: Api) -> None:
    ann = api.person()
    attempt = api.attempt(ann.submit()["id"])
    attempt.agents[0].start()
    found: list[Any] = []
    started = threading.Event()

    def read() -> None:
        found.extend(follow(ann, attempt.job_id, then=started.set))

    follower = threading.Thread(target=read)
    follower.start()
    assert started.wait(300)
    name = api.context.database.engine.url.database
    with servers.postgres.connect() as connection:
        connection.execute(f"alter database {name} allow_connections false")
        connection.execute(_END, [name])
    answers = [
        ann.http.get("/api/v1/jobs"),
        ann.http.post("/api/v1/jobs", json={"manifest": HELLO}),
        attempt.agents[0].post("heartbeat"),
        attempt.agents[0].post("logs", sequence=0, lines=[{"t": 0, "s": "x"}]),
    ]
    for answer in answers:
        assert (answer.status_code, code_of(answer)) == (503, "database_unavailable")
        assert "retry-after" in answer.headers
    assert ann.http.get("/readyz").status_code == 503
    assert ann.http.get("/metrics").status_code == 200
    assert ann.http.get("/healthz").status_code == 200
    with servers.postgres.connect() as connection:
        connection.execute(f"alter database {name} allow_connections true")
    attempt.agents[0].log(0, "after it came back")
    finish(api, attempt)
    follower.join(300)
    assert [data["text"] for name, _, data in found if name == "line"] == ["after it came back"]
    assert found[-1][0] == "end", "the same stream went on"


def test_a_restarted_postgres_costs_no_error(api: Api, ann: Person, servers: Servers) -> None:
    ann.submit()
    with servers.postgres.connect() as connection:
        name = api.context.database.engine.url.database
        connection.execute(_END, [name])
    for _ in range(5):
        assert ann.http.get("/api/v1/jobs").status_code == 200
