"""Reading the audit trail: permissions, filters and pages."""

from __future__ import annotations

import time
from typing import Any

import httpx
from tests.api.conftest import Api, Person, code_of


def records(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    answer = client.get("/api/v1/audit", params=params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["records"]
    return found


def test_an_owner_reads_the_records_of_the_project_alone(api: Api, ann: Person, bob: Person) -> None:
    job = ann.submit()["id"]
    bob.submit()
    [record] = records(ann.http)
    assert (record["object_id"], record["project"], record["outcome"]) == (job, ann.project, "allowed")
    assert records(ann.http, project=ann.project) == [record]
    foreign = ann.http.get("/api/v1/audit", params={"project": bob.project})
    assert (foreign.status_code, code_of(foreign)) == (404, "not_found")
    for role in ("viewer", "editor"):
        member = api.person(role, ann.project_id)
        refused = member.http.get("/api/v1/audit")
        assert (refused.status_code, code_of(refused)) == (403, "forbidden")


def test_an_administrator_reads_all_and_the_reading_is_recorded(ann: Person, bob: Person, root: Person) -> None:
    ann.submit()
    bob.submit()
    found = records(root.http, limit=2)
    assert [record["user"] for record in found] == [bob.name, ann.name]
    assert [record["user"] for record in records(root.http, project=ann.project)] == [ann.name]
    assert (records(root.http, limit=1)[0]["action"], records(root.http)[0]["user"]) == ("audit.read", root.name)


def test_records_can_be_filtered(api: Api, ann: Person) -> None:
    editor = api.person("editor", ann.project_id)
    job = ann.submit()["id"]
    time.sleep(0.01)
    editor.http.post(f"/api/v1/jobs/{job}/halt")
    editor.http.put("/api/v1/secrets/wandb", json={"value": "k"})
    editor.http.post("/api/v1/jobs/job-none/halt")

    def actions(**params: Any) -> list[tuple[str, int]]:
        return [(record["action"], record["status"]) for record in records(ann.http, **params)]

    assert actions(user=ann.name) == [("jobs.submit", 201)]
    assert actions(action="jobs") == [("jobs.halt", 404), ("jobs.halt", 202), ("jobs.submit", 201)]
    assert actions(action="jobs.halt", outcome="allowed") == [("jobs.halt", 202)]
    assert actions(action="job") == []
    assert actions(outcome="refused") == [("jobs.halt", 404)]
    assert actions(object=job) == actions(object=f"job:{job}") == [("jobs.halt", 202), ("jobs.submit", 201)]
    assert actions(object=f"secret:{job}") == []
    halted = records(ann.http, action="jobs.halt", outcome="allowed")[0]["at"]
    assert actions(until=halted) == [("jobs.submit", 201)]
    assert ("jobs.submit", 201) not in actions(since=halted)
    assert len(actions(since="1h")) == 4
    for wrong in ({"outcome": "maybe"}, {"since": "yesterday"}, {"cursor": "x"}, {"user": "a\0"}):
        assert ann.http.get("/api/v1/audit", params=wrong).status_code == 400


def test_pages_follow_each_other(ann: Person) -> None:
    jobs = [ann.submit()["id"] for _ in range(5)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = ann.http.get("/api/v1/audit", params=params).json()
        seen += [record["object_id"] for record in page["records"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == jobs[::-1]
