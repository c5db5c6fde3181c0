"""The walls of Postgres behind the API's: a query that forgets its project finds nothing of another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import select, text
from tests.api.conftest import Api, Person

from weft_api.context import Context
from weft_core.store.models import Base
from weft_core.store.scope import Scope

_SECRET = {"value": "s3cr3t"}


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the condition away that every query of a Scope has."""
    monkeypatch.setattr(Scope, "select", lambda _, model, *conditions: select(model).where(*conditions))


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


def seen(api: Api, stranger: Person, job_id: str) -> dict[str, int]:
    """What somebody of another project gets who asks for a job and what belongs to it, and tries to change it."""
    job = f"/api/v1/jobs/{job_id}"
    reads = (job, f"{job}/manifest", f"{job}/events", f"{job}/logs", f"{job}/metrics", f"{job}/deliveries")
    files = (f"{job}/files", f"{job}/checkpoints", f"/v1/models/{job_id}")
    calls: list[tuple[str, str, dict[str, Any]]] = [("GET", path, {}) for path in (*reads, *files)]
    calls += [("POST", f"{job}/halt", {}), ("DELETE", job, {}), ("DELETE", "/api/v1/secrets/theirs", {})]
    query = {"params": {"version": "2017-02-13"}}
    return {
        f"{method} {path}": stranger.http.request(
            method, path, **(query if path.startswith("/v1/") else more)
        ).status_code
        for method, path, more in calls
    }


def submitted(person: Person) -> str:
    assert person.http.put("/api/v1/secrets/theirs", json=_SECRET).status_code in (200, 201, 204)
    job_id: str = person.submit()["id"]
    return job_id


def listed(answer: httpx.Response) -> set[str]:
    assert answer.status_code == 200, answer.text
    return {job["id"] for job in answer.json()["jobs"]}


@pytest.mark.usefixtures("forgetful")
def test_without_the_condition_another_projects_job_is_not_found(api: Api, ann: Person, bob: Person) -> None:
    theirs, ours = submitted(bob), ann.submit()["id"]
    assert set(seen(api, ann, theirs).values()) == {404}
    assert listed(ann.http.get("/api/v1/jobs")) == {ours}
    assert bob.http.get(f"/api/v1/jobs/{theirs}").json()["state"] == "QUEUED"
    assert [secret["name"] for secret in bob.http.get("/api/v1/secrets").json()["secrets"]] == ["theirs"]


@pytest.mark.usefixtures("forgetful", "walls_down")
def test_the_test_above_could_fail(api: Api, ann: Person, bob: Person) -> None:
    theirs = submitted(bob)
    found = seen(api, ann, theirs)
    assert 404 not in found.values(), found
    assert theirs in listed(ann.http.get("/api/v1/jobs"))


@pytest.mark.usefixtures("walls_down")
def test_readyz_shows_that_it_is_not_in_force(api: Api) -> None:
    answer = api.client().get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["checks"]["row_security"].startswith("not in force")


def test_numbers_of_the_queue_count_other_projects(api: Api, ann: Person, bob: Person) -> None:
    context: Context = api.context
    before = ann.http.get("/api/v1/engines/local").json()
    bob.submit()
    job_id = ann.submit()["id"]
    engine = ann.http.get("/api/v1/engines/local").json()
    assert engine["waiting_of_others"] == before["waiting_of_others"] + 1
    assert engine["queued"] == before["queued"] + 2
    place = ann.http.get(f"/api/v1/jobs/{job_id}").json()["queue_position"]
    assert place == engine["queued"] == next(job["place"] for job in engine["waiting"] if job["id"] == job_id)
    assert context.settings.default_engine == "local"
