"""A repeated POST gets the answer of the first one."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select
from tests.api.conftest import HELLO, Api, Person, code_of, zipped

from weft_core.store.models import IdempotencyKey, Job

KEY = {"Idempotency-Key": "one"}


def _jobs(person: Person) -> int:
    return len(person.http.get("/api/v1/jobs").json()["jobs"])


def test_the_same_key_and_body_make_one_job(ann: Person) -> None:
    answers = [ann.http.post("/api/v1/jobs", json={"manifest": HELLO}, headers=KEY) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201] * 3
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert [answer.headers.get("idempotency-replayed") for answer in answers] == [None, "true", "true"]
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert _jobs(ann) == 1


def test_another_body_or_route_is_a_conflict(ann: Person) -> None:
    job = ann.http.post("/api/v1/jobs", json={"manifest": HELLO}, headers=KEY).json()
    others: list[httpx.Response] = [
        ann.http.post("/api/v1/jobs", json={"manifest": HELLO + "\n"}, headers=KEY),
        ann.http.post("/api/v1/jobs", json={"manifest": HELLO, "set": {"learners": "2"}}, headers=KEY),
        ann.http.post(f"/api/v1/jobs/{job['id']}/halt", headers=KEY),
        ann.http.post("/api/v1/tokens", json={"name": "x"}, headers=KEY),
    ]
    assert [(answer.status_code, code_of(answer)) for answer in others] == [(409, "idempotency_conflict")] * 4
    assert _jobs(ann) == 1


def test_keys_are_each_projects_own(ann: Person, bob: Person) -> None:
    for person in (ann, bob):
        assert person.http.post("/api/v1/jobs", json={"manifest": HELLO}, headers=KEY).status_code == 201
        assert _jobs(person) == 1


def test_at_the_same_time(api: Api, ann: Person) -> None:
    with ThreadPoolExecutor(10) as pool:
        answers = list(
            pool.map(lambda _: ann.http.post("/api/v1/jobs", json={"manifest": HELLO}, headers=KEY), range(10))
        )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    with api.context.database.transaction() as session:
        assert session.scalar(select(func.count()).where(Job.project_id == ann.project_id)) == 1


def test_code_in_the_request_and_code_sent_before_are_the_same(ann: Person) -> None:
    bundle = zipped(a__py="1")
    first = ann.http.post("/api/v1/jobs", data={"manifest": HELLO}, files={"code": bundle}, headers=KEY).json()
    body = {"manifest": HELLO, "code_sha256": first["code_sha256"]}
    assert ann.http.post("/api/v1/jobs", json=body, headers=KEY).json()["id"] == first["id"]
    other = ann.http.post("/api/v1/jobs", data={"manifest": HELLO}, files={"code": zipped(a__py="2")}, headers=KEY)
    assert other.status_code == 409


def test_a_refused_request_leaves_its_key_free(ann: Person) -> None:
    assert ann.http.post("/api/v1/jobs", json={"manifest": "x"}, headers=KEY).status_code == 400
    assert ann.http.post("/api/v1/jobs", json={"manifest": HELLO}, headers=KEY).status_code == 201


def test_tokens_data_stores_and_reruns(ann: Person) -> None:
    def twice(path: str, key: str, body: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        answers = [ann.http.post(path, json=body, headers={"Idempotency-Key": key}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 201], answers[1].text
        return [answer.json() for answer in answers]

    first, second = twice("/api/v1/tokens", "token", {"name": "ci"})
    assert first["token"] == second["token"]
    store = {"name": "cos", "endpoint": "http://127.0.0.1:9", "user_name": "a", "password": "b"}
    first, second = twice("/api/v1/datastores?check=false", "store", store)
    assert first == second
    job = ann.submit()
    first, second = twice(f"/api/v1/jobs/{job['id']}/rerun", "rerun", {"set": {"learners": "2"}})
    assert first["id"] == second["id"]


def test_one_data_store_at_the_same_time(ann: Person) -> None:
    store = {"name": "cos", "endpoint": "http://127.0.0.1:9", "user_name": "a", "password": "b"}

    def post(key: str) -> int:
        headers = {"Idempotency-Key": key}
        return ann.http.post("/api/v1/datastores?check=false", json=store, headers=headers).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(post, ["same"] * 8)) == {201}
        assert set(pool.map(post, [f"key-{n}" for n in range(8)])) == {409}


def test_a_repeated_resume_does_not_resume_again(api: Api, ann: Person) -> None:
    job_id = ann.submit()["id"]
    api.set_state(job_id, "FAILED")
    resume = f"/api/v1/jobs/{job_id}/resume"
    assert ann.http.post(resume, headers=KEY).json()["state"] == "QUEUED"
    api.set_state(job_id, "FAILED", "again")
    assert ann.http.post(resume, headers=KEY).json()["state"] == "FAILED", "a late repetition of the first request"
    assert ann.http.post(resume, headers={"Idempotency-Key": "two"}).json()["state"] == "QUEUED"


def test_what_is_kept_says_nothing_of_the_body(api: Api, ann: Person) -> None:
    store = {"name": "cos", "endpoint": "http://127.0.0.1:9", "user_name": "a", "password": "hunter2"}
    ann.http.post("/api/v1/datastores?check=false", json=store, headers=KEY)
    made = ann.http.post("/api/v1/tokens", json={"name": "ci"}, headers={"Idempotency-Key": "two"}).json()
    with api.context.database.transaction() as session:
        rows = session.scalars(select(IdempotencyKey).where(IdempotencyKey.project_id == ann.project_id)).all()
    kept = " ".join(f"{row.body_sha256} {row.resource_id}" for row in rows)
    for secret in ("hunter2", made["token"], hashlib.sha256(b"hunter2").hexdigest()):
        assert secret not in kept


@pytest.mark.parametrize("key", ["", "x" * 201, "a b", "ü"])
def test_bad_keys(ann: Person, key: str) -> None:
    headers = [(b"Idempotency-Key", key.encode("latin-1"))]
    answer = ann.http.post("/api/v1/jobs", json={"manifest": HELLO}, headers=headers)
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
