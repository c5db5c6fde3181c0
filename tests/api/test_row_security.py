"""The walls of Postgres behind the API's: a query that forgets its project finds nothing of another one."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import select, text
from tests.api.conftest import Api, Person

from weft_core.ids import new_id
from weft_core.store.models import Base
from weft_core.store.scope import Scope


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the condition away that every query of a Scope has."""
    monkeypatch.setattr(Scope, "select", lambda _, model, *conditions: select(model).where(*conditions))
    monkeypatch.setattr(Scope, "_own", lambda *_: [])


@pytest.fixture
def walls_down(api: Api) -> Iterator[None]:
    """Row-level security is off in this database, and back at the end."""
    tables = [table.name for table in Base.metadata.sorted_tables if "project_id" in table.columns]

    def switch(to: str) -> None:
        with api.context.database.transaction() as session:
            for table in tables:
                session.execute(text(f"alter table {table} {to} row level security"))
        assert (api.client().get("/readyz").json()["checks"]["row_security"] == "ok") is (to == "enable")

    switch("disable")
    yield
    switch("enable")


def submitted(person: Person) -> tuple[str, str]:
    """The id of a new job, and the name of a new secret."""
    name = new_id("secret")
    person.http.put(f"/api/v1/secrets/{name}", json={"value": "s3cr3t"}).raise_for_status()
    return person.submit()["id"], name


def answers(stranger: Person, job_id: str, secret: str) -> dict[str, int]:
    """The answers to a member of another project who reads or changes a job and the things that belong to it."""
    job = f"/api/v1/jobs/{job_id}"
    below = ("", "/manifest", "/events", "/logs", "/metrics", "/deliveries", "/files", "/checkpoints")
    calls = [("GET", job + path) for path in below] + [("GET", f"/v1/models/{job_id}?version=2017-02-13")]
    calls += [("POST", f"{job}/halt"), ("DELETE", job), ("DELETE", f"/api/v1/secrets/{secret}")]
    return {f"{method} {path}": stranger.http.request(method, path).status_code for method, path in calls}


def listed(answer: httpx.Response) -> set[str]:
    assert answer.status_code == 200, answer.text
    return {job["id"] for job in answer.json()["jobs"]}


@pytest.mark.usefixtures("forgetful")
def test_without_the_condition_another_projects_job_is_not_found(ann: Person, bob: Person) -> None:
    (theirs, secret), ours = submitted(bob), ann.submit()["id"]
    found = answers(ann, theirs, secret)
    assert set(found.values()) == {404}, found
    assert listed(ann.http.get("/api/v1/jobs")) == {ours}
    assert bob.http.get(f"/api/v1/jobs/{theirs}").json()["state"] == "QUEUED"
    assert [row["name"] for row in bob.http.get("/api/v1/secrets").json()["secrets"]] == [secret]


@pytest.mark.usefixtures("forgetful", "walls_down")
def test_the_test_above_could_fail(ann: Person, bob: Person) -> None:
    theirs, secret = submitted(bob)
    found = answers(ann, theirs, secret)
    assert 404 not in found.values(), found
    assert theirs in listed(ann.http.get("/api/v1/jobs"))


@pytest.mark.usefixtures("walls_down")
def test_readyz_shows_that_it_is_not_in_force(api: Api) -> None:
    answer = api.client().get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["checks"]["row_security"].startswith("not in force")


def test_numbers_of_the_queue_count_other_projects(ann: Person, bob: Person) -> None:
    before = ann.http.get("/api/v1/engines/local").json()
    ahead = bob.submit()["id"]
    job_id = ann.submit()["id"]
    engine = ann.http.get("/api/v1/engines/local").json()
    assert engine["waiting_of_others"] == before["waiting_of_others"] + 1
    assert engine["queued"] == before["queued"] + 2
    place = ann.http.get(f"/api/v1/jobs/{job_id}").json()["queue_position"]
    assert place == next(job["place"] for job in engine["waiting"] if job["id"] == job_id)
    # Jobs of other tests may wait behind these two, with a lower priority.
    assert place == bob.http.get(f"/api/v1/jobs/{ahead}").json()["queue_position"] + 1 <= engine["queued"]
