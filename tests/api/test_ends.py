"""Waiting for the end of a job: GET /jobs/{id}/end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from sqlalchemy import delete
from tests.api.conftest import Api, Attempted, Person
from tests.api.test_logs import finish

from weft_api.jobs.ends import ENDS, Ends
from weft_api.streaming import sign_ins, wakeups
from weft_core.store.models import Job


@pytest.fixture
def attempt(api: Api, ann: Person) -> Attempted:
    return api.attempt(ann.submit()["id"])


@pytest.fixture
def hints_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a hint makes a waiting request look at the job again."""
    for name in ("_THERE", "_AWAY"):
        monkeypatch.setattr(wakeups, name, 600.0)


def end(person: Person, job_id: str, wait: float = 30) -> dict[str, Any]:
    answer = person.http.get(f"/api/v1/jobs/{job_id}/end?wait={wait}", timeout=120)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@contextmanager
def waiting(api: Api, *callers: tuple[Person, str]) -> Iterator[list[Future[dict[str, Any]]]]:
    """Requests that the server holds."""
    before = len(ENDS.of(api.context)._waiting)
    with ThreadPoolExecutor(len(callers)) as pool:
        asked = [pool.submit(end, person, job_id) for person, job_id in callers]
        while len(ENDS.of(api.context)._waiting) < before + len(callers):
            time.sleep(0.01)
        yield asked


def test_a_job_that_has_ended_is_answered_at_once(api: Api, ann: Person, attempt: Attempted) -> None:
    finish(api, attempt, "FAILED")
    assert end(ann, attempt.job_id) == {"ended": True, "state": "FAILED", "reason": "now FAILED"}


@pytest.mark.usefixtures("hints_only")
def test_the_answer_comes_with_the_end_and_not_before(api: Api, ann: Person, attempt: Attempted) -> None:
    with waiting(api, (ann, attempt.job_id), (ann, attempt.job_id)) as asked:
        attempt.agents[0].start()
        attempt.agents[0].log(0, "a line")
        finish(api, attempt)
        expected = {"ended": True, "state": "COMPLETED", "reason": "now COMPLETED"}
        assert [answer.result() for answer in asked] == [expected] * 2


def test_the_end_is_noticed_without_a_hint(api: Api, ann: Person, attempt: Attempted) -> None:
    with waiting(api, (ann, attempt.job_id)) as [asked]:
        with api.context.database.transaction() as session:
            session.get_one(Job, attempt.job_id).state = "HALTED"
        assert asked.result()["state"] == "HALTED"


def test_the_time_runs_out(ann: Person, attempt: Attempted) -> None:
    for seconds in (0, 0.2):
        found = end(ann, attempt.job_id, seconds)
        assert (found["ended"], found["state"]) == (False, "QUEUED")


@pytest.mark.parametrize("wait", ["-1", "31", "nan", "x"])
def test_how_long_it_may_take(ann: Person, attempt: Attempted, wait: str) -> None:
    assert ann.http.get(f"/api/v1/jobs/{attempt.job_id}/end?wait={wait}").status_code == 400


def test_requests_that_wait_hold_no_thread_no_connection_and_no_turn(
    api: Api, ann: Person, bob: Person, attempt: Attempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, sizes = Ends._read, []

    def counting(self: Ends, project_id: str, job_ids: list[str]) -> Any:
        sizes.append(len(job_ids))
        return read(self, project_id, job_ids)

    monkeypatch.setattr(Ends, "_read", counting)
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=api.url, headers=dict(ann.http.headers), timeout=120, limits=limits) as http:
        many = replace(ann, http=http)
        with waiting(api, *[(many, attempt.job_id)] * 100) as asked:
            assert ann.http.get("/api/v1/jobs").status_code == bob.http.get("/api/v1/jobs").status_code == 200
            assert not any(answer.done() for answer in asked), "it was answered while all of them waited"
            sizes.clear()
            finish(api, attempt)
            assert {answer.result()["state"] for answer in asked} == {"COMPLETED"}
    assert max(sizes) > 10, "those that are due together are one query"


def test_a_deleted_job(api: Api, ann: Person, attempt: Attempted) -> None:
    with waiting(api, (ann, attempt.job_id)) as [asked]:
        api.end_attempt(attempt)
        with api.context.database.transaction() as session:
            session.execute(delete(Job).where(Job.id == attempt.job_id))
        assert asked.result()["ended"] is False
    assert ann.http.get(f"/api/v1/jobs/{attempt.job_id}/end").status_code == 404


def test_a_caller_who_is_signed_out(api: Api, ann: Person, attempt: Attempted) -> None:
    with waiting(api, (ann, attempt.job_id)) as [asked]:
        (token,) = [
            token for token in ann.http.get("/api/v1/tokens").json()["tokens"] if ann.token.startswith(token["prefix"])
        ]
        assert ann.http.delete(f"/api/v1/tokens/{token['id']}").status_code == 204
        assert asked.result()["ended"] is False
    assert ann.http.get(f"/api/v1/jobs/{attempt.job_id}/end").status_code == 401


def test_a_caller_with_too_many_streams_is_not_held(
    api: Api, ann: Person, attempt: Attempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sign_ins._MOST, "token", 1)
    with waiting(api, (ann, attempt.job_id)) as [asked]:
        assert end(ann, attempt.job_id)["ended"] is False
        finish(api, attempt)
        assert asked.result()["ended"] is True
