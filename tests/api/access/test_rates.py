"""Requests that come too fast with one token."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select
from tests.api.conftest import PASSWORD, Api, Person, code_of
from tests.servers import free_port

from weft.client import Client
from weft_api.access.rates import RATES, Rates
from weft_api.http.problems import Problem
from weft_core.settings import LimitSettings, Settings
from weft_core.store.models import AuditRecord


@contextmanager
def running(settings: Settings, **limits: Any) -> Iterator[Api]:
    changed = settings.model_copy(update={"limits": LimitSettings(**limits)})
    started = Api(changed)
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def slow(api_settings: Settings) -> Iterator[Api]:
    """An API that takes three requests at once, and then one a minute."""
    with running(api_settings, requests_per_minute=1, requests_burst=3) as started:
        yield started


def statuses(person: Person, count: int) -> list[int]:
    return [person.http.get("/api/v1/me").status_code for _ in range(count)]


def test_beyond_the_burst_a_token_has_to_wait_and_is_told_how_long(slow: Api) -> None:
    ann, bob = slow.person(), slow.person()
    assert statuses(ann, 3) == [200, 200, 200]
    refused = ann.http.get("/api/v1/me")
    assert (refused.status_code, code_of(refused)) == (429, "too_many_requests")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert "this token may make 1 requests a minute" in refused.json()["detail"]
    assert statuses(bob, 1) == [200]


def test_a_flood_that_was_refused_once_reaches_no_server(slow: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob = slow.person(), slow.person()
    assert statuses(ann, 4) == [200, 200, 200, 429]
    asked: list[str] = []
    monkeypatch.setattr(slow.context.database, "transaction", lambda: asked.append("Postgres"))
    monkeypatch.setattr(RATES.of(slow.context), "_take", lambda **_: asked.append("Redis"))
    refused = ann.http.get("/api/v1/me")
    assert (refused.status_code, code_of(refused), asked) == (429, "too_many_requests", [])
    monkeypatch.undo()
    assert statuses(bob, 1) == [200]


def test_all_processes_count_together(slow: Api, api_settings: Settings) -> None:
    ann = slow.person()
    with running(api_settings, requests_per_minute=1, requests_burst=3) as other:
        elsewhere = Person(other.client(ann.token), ann.name, ann.user_id, ann.project, ann.project_id, ann.token)
        assert statuses(ann, 2) + statuses(elsewhere, 2) == [200, 200, 200, 429]


def test_sessions_ffdls_passwords_and_mlflows_clients_are_counted_too(slow: Api) -> None:
    ann = slow.person()
    browser = slow.client()
    assert browser.post("/api/v1/session", json={"user": ann.name, "password": PASSWORD}).status_code == 200
    assert [browser.get("/api/v1/me").status_code for _ in range(4)] == [200, 200, 200, 429]
    basic = slow.client()
    basic.headers["Authorization"] = "Basic " + base64.b64encode(f"{ann.name}:{PASSWORD}".encode()).decode()
    assert [basic.get("/v1/models").status_code for _ in range(4)] == [200, 200, 200, 429]
    answers = [ann.http.get("/api/2.0/mlflow/experiments/get?experiment_id=0") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].json()["error_code"] == "REQUEST_LIMIT_EXCEEDED"


def test_writes_that_come_too_fast_do_not_fill_the_audit_trail(slow: Api) -> None:
    ann = slow.person()
    statuses(ann, 3)
    for _ in range(10):
        assert ann.http.post("/api/v1/jobs", json={}).status_code == 429
    with slow.context.database.transaction() as session:
        found = session.scalars(select(AuditRecord).where(AuditRecord.user_id == ann.user_id)).all()
    assert [(record.action, record.status) for record in found] == [("jobs.submit", 429)]


def test_without_redis_nobody_is_refused(api_settings: Settings) -> None:
    away = api_settings.model_copy(update={"redis_url": SecretStr(f"redis://127.0.0.1:{free_port()}/0")})
    with running(away, requests_per_minute=1, requests_burst=1) as started:
        assert statuses(started.person(), 5) == [200] * 5


def test_0_is_no_limit(api_settings: Settings) -> None:
    with running(api_settings, requests_per_minute=0, requests_burst=1) as started:
        assert statuses(started.person(), 5) == [200] * 5


def test_the_learners_of_an_attempt_have_a_limit_of_their_own(api_settings: Settings) -> None:
    with running(api_settings, learner_requests_per_minute=6, requests_per_minute=1) as started:
        ann = started.person()
        job = ann.submit()["id"]
        first = started.attempt(job)
        answers = [first.agents[0].post("heartbeat") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [410, 410, 429]  # it has no start grant
        assert int(answers[-1].headers["retry-after"]) >= 1
        started.end_attempt(first)
        second = started.attempt(job)
        assert second.agents[0].post("start", hostname="here").status_code == 200


def test_attempts_that_have_ended_are_forgotten_and_busy_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("weft_api.access.rates.time", SimpleNamespace(monotonic=lambda: clock.now))
    rates = Rates("redis://127.0.0.1:9/0", LimitSettings(learner_requests_per_minute=6))
    for number in range(3_000):
        clock.now += 20.0
        rates.check_learner(f"ended-{number}")
    assert len(rates._due) <= 256
    for number in range(3_000):  # all at once, so that none of them is quiet
        rates.check_learner(f"busy-{number}")
        rates.check_learner(f"busy-{number}")
    with pytest.raises(Problem):
        rates.check_learner("busy-0")
    rates.close()


def test_the_client_waits_and_tries_again(api_settings: Settings) -> None:
    with running(api_settings, requests_per_minute=120, requests_burst=2) as started:
        ann = started.person()
        with Client(started.url, ann.token) as client:
            assert {client.me().user for _ in range(6)} == {ann.name}
