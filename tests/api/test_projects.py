"""Users, projects, members and quotas: permissions, and mistakes that the API prevents."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import delete, func, select, update
from tests.api.conftest import HELLO, PASSWORD, Api, Person, backup, code_of

from weft_core.objects import mlflow_prefix
from weft_core.store.models import EngineStatus, Project, QueueChange, User


@pytest.fixture
def root(api: Api) -> Person:
    """An administrator, in a project of their own; the only one."""
    person = api.person()
    with api.context.database.transaction() as session:
        session.execute(update(User).values(is_admin=User.id == person.user_id))
    return person


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, code_of(answer)


def sign_in(api: Api, user: str, password: str) -> httpx.Client:
    browser = api.client()
    answer = browser.post("/api/v1/session", json={"user": user, "password": password})
    assert answer.status_code == 200, answer.text
    return browser


@pytest.mark.slow
def test_a_user_from_the_first_day_to_the_last(api: Api, root: Person) -> None:
    name = f"{root.name}-ada"
    body = {"name": name, "password": "first password", "email": "ada@example.org"}
    key = {"Idempotency-Key": f"{name}-1"}
    made = root.http.post("/api/v1/users", json=body, headers=key)
    assert made.status_code == 201, made.text
    assert made.json() | {"created_at": ""} == {
        "name": name,
        "email": "ada@example.org",
        "admin": False,
        "disabled": False,
        "password": True,
        "created_at": "",
        "projects": [],
    }
    assert root.http.post("/api/v1/users", json=body, headers=key).json() == made.json(), "sent twice, done once"
    assert refused(root.http.post("/api/v1/users", json=body)) == (409, "already_exists")
    other = body | {"password": "another password"}
    assert refused(root.http.post("/api/v1/users", json=other, headers=key)) == (409, "idempotency_conflict")
    for bad in ({"name": ""}, {"name": "a/b"}, {"name": "<b>"}, {"name": "x", "password": "short"}):
        answer = root.http.post("/api/v1/users", json=bad)
        assert refused(answer) == (400, "invalid_request")
        assert "short" not in answer.text

    nowhere = api.client().post("/api/v1/session", json={"user": name, "password": "first password"})
    assert (nowhere.status_code, "member of no project" in nowhere.text) == (401, True)
    path = f"/api/v1/projects/{root.project}/members/{name}"
    assert root.http.put(path, json={"role": "viewer"}).status_code == 200
    here, elsewhere = (sign_in(api, name, "first password") for _ in range(2))
    ours = {"X-Weft-Session": "1"}
    change = {"password": "second password", "current_password": "a guess"}
    assert refused(here.patch(f"/api/v1/users/{name}", json=change, headers=ours)) == (401, "unauthenticated")
    missing = here.patch(f"/api/v1/users/{name}", json={"password": "second password"}, headers=ours)
    assert refused(missing) == (400, "invalid_request")
    change["current_password"] = "first password"
    assert here.patch(f"/api/v1/users/{name}", json=change, headers=ours).status_code == 200
    assert here.get("/api/v1/me").status_code == 200
    assert elsewhere.get("/api/v1/me").status_code == 401, "a new password ends the other sessions"
    assert refused(here.patch(f"/api/v1/users/{name}", json={"admin": True}, headers=ours)) == (403, "forbidden")
    assert refused(here.patch(f"/api/v1/users/{root.name}", json={"admin": False}, headers=ours)) == (404, "not_found")

    assert root.http.patch(f"/api/v1/users/{name}", json={"disabled": True}).json()["disabled"]
    assert here.get("/api/v1/me").status_code == 401
    assert name in {user["name"] for user in root.http.get("/api/v1/users").json()["users"]}
    assert not root.http.patch(f"/api/v1/users/{name}", json={"disabled": False}).json()["disabled"]
    assert here.get("/api/v1/me").status_code == 401, "disabling ended the session for good"


def test_the_last_administrator_stays_one(api: Api, root: Person, ann: Person) -> None:
    mine, hers = f"/api/v1/users/{root.name}", f"/api/v1/users/{ann.name}"
    for change in ({"admin": False}, {"disabled": True}):
        answer = root.http.patch(mine, json=change)
        assert refused(answer) == (409, "conflict")
        assert "last administrator" in answer.json()["detail"]
    assert root.http.patch(hers, json={"admin": True}).json()["admin"]
    assert root.http.patch(hers, json={"disabled": True}).status_code == 200
    assert refused(root.http.patch(mine, json={"admin": False})) == (409, "conflict"), "who is disabled is none"
    root.http.patch(hers, json={"disabled": False})
    assert root.http.patch(mine, json={"admin": False}).status_code == 200
    assert refused(root.http.get("/api/v1/users")) == (403, "forbidden")


def test_what_is_for_administrators(api: Api, ann: Person) -> None:
    project = f"/api/v1/projects/{ann.project}"
    for answer in (
        ann.http.get("/api/v1/users"),
        ann.http.post("/api/v1/users", json={"name": "x"}),
        ann.http.post("/api/v1/projects", json={"name": "x"}),
        ann.http.delete(project),
        ann.http.put(f"{project}/quota", json={"gpus": 1000}),
    ):
        assert refused(answer) == (403, "forbidden")
    assert [row["name"] for row in ann.http.get("/api/v1/projects").json()["projects"]] == [ann.project]


def test_members_are_the_owners_affair_and_one_owner_stays(api: Api, root: Person, ann: Person, bob: Person) -> None:
    members = f"/api/v1/projects/{ann.project}/members"
    assert refused(bob.http.put(f"{members}/{bob.name}", json={"role": "owner"})) == (404, "not_found")
    listed = ann.http.put(f"{members}/{bob.name}", json={"role": "editor"}).json()["members"]
    assert [(member["user"], member["role"]) for member in listed] == [(ann.name, "owner"), (bob.name, "editor")]
    assert bob.http.get(members).json()["members"] == listed
    assert refused(bob.http.put(f"{members}/{root.name}", json={"role": "viewer"})) == (403, "forbidden")
    assert refused(ann.http.put(f"{members}/nobody", json={"role": "viewer"})) == (404, "not_found")
    assert refused(ann.http.put(f"{members}/{bob.name}", json={"role": "king"})) == (400, "invalid_request")
    for answer in (
        ann.http.put(f"{members}/{ann.name}", json={"role": "viewer"}),
        ann.http.delete(f"{members}/{ann.name}"),
        root.http.delete(f"{members}/{ann.name}"),
    ):
        assert refused(answer) == (409, "conflict")
    assert ann.http.put(f"{members}/{bob.name}", json={"role": "owner"}).status_code == 200
    assert refused(bob.http.delete(f"{members}/{ann.name}")) == (403, "forbidden"), "his token is of his own project"
    body = {"user": bob.name, "password": PASSWORD, "project": ann.project}
    inside = api.client(api.client().post("/api/v1/login", json=body).json()["token"])
    assert inside.delete(f"{members}/{ann.name}").status_code == 204
    assert ann.http.get("/api/v1/me").status_code == 401, "her token was of this project"
    assert root.http.put(f"{members}/{ann.name}", json={"role": "viewer"}).status_code == 200
    assert ann.http.get("/api/v1/me").status_code == 401, "it ended for good"
    again = api.client(api.client().post("/api/v1/login", json={**body, "user": ann.name}).json()["token"])
    assert again.delete(f"{members}/{ann.name}").status_code == 204, "everyone may leave"


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        (None, "engine local has not reported yet"),
        ({"exposed": "its setting isolation is none"}, "apart: its setting isolation is none"),
        ({"cpus": 1}, ""),
    ],
    ids=["not looked at", "exposed", "apart"],
)
def test_a_second_project_needs_an_engine_that_keeps_jobs_apart(
    api: Api, root: Person, capacity: dict[str, Any] | None, expected: str
) -> None:
    with api.context.database.transaction() as session:
        session.execute(delete(EngineStatus))
        session.add(EngineStatus(name="local", type="local", capacity=capacity))
    body = {"name": f"{root.project}-{len(expected)}"}
    answer = root.http.post("/api/v1/projects", json=body)
    if expected:
        assert refused(answer) == (409, "conflict")
        assert expected in answer.json()["detail"]
        answer = root.http.post("/api/v1/projects", json=body | {"allow_untrusted": True})
    assert answer.status_code == 201, answer.text
    with api.context.database.transaction() as session:
        session.execute(delete(EngineStatus))


def test_a_project_is_deleted_when_it_is_empty(api: Api, root: Person, ann: Person) -> None:
    name = f"{ann.project}-new"
    made = root.http.post("/api/v1/projects", json={"name": name, "owner": ann.name, "allow_untrusted": True})
    assert made.status_code == 201, made.text
    shown = {"name": name, "role": None, "members": 1, "jobs": 0, "jobs_estimated": False, "created_at": ""}
    assert made.json() | {"created_at": ""} == shown
    assert refused(root.http.post("/api/v1/projects", json={"name": name})) == (409, "already_exists")
    assert refused(
        root.http.post("/api/v1/projects", json={"name": f"{name}2", "owner": "?", "allow_untrusted": True})
    ) == (
        400,
        "invalid_request",
    )
    browser = sign_in(api, ann.name, PASSWORD)
    ours = {"X-Weft-Session": "1"}
    browser.put("/api/v1/session/project", json={"project": name}, headers=ours)
    browser.put("/api/v1/secrets/key", json={"value": "x"}, headers=ours)
    answer = root.http.delete(f"/api/v1/projects/{name}")
    assert refused(answer) == (409, "conflict")
    assert "it has 1 secret" in answer.json()["detail"]
    browser.delete("/api/v1/secrets/key", headers=ours)
    with api.context.database.transaction() as session:
        project_id = session.scalars(select(Project.id).where(Project.name == name)).one()
    artifact = f"{mlflow_prefix(project_id, 'run')}a.txt"
    api.context.objects.put(artifact, b"of a run of no job")
    with backup(api):
        assert refused(root.http.delete(f"/api/v1/projects/{name}")) == (409, "conflict")
    assert api.context.objects.head(artifact)
    assert root.http.delete(f"/api/v1/projects/{name}").status_code == 204
    assert api.context.objects.head(artifact) is None
    assert browser.get("/api/v1/session").status_code == 401
    assert refused(root.http.delete(f"/api/v1/projects/{name}")) == (404, "not_found")
    assert refused(root.http.delete(f"/api/v1/projects/{root.project}")) == (409, "conflict"), "one's own"


def test_quotas_shares_and_caps_have_the_queues_planned_again(api: Api, root: Person, ann: Person) -> None:
    def asked() -> set[str]:
        with api.context.database.transaction() as session:
            return set(session.scalars(delete(QueueChange).returning(QueueChange.engine)))

    path = f"/api/v1/projects/{ann.project}"
    ann.submit()
    asked()
    changes = [("quota", {"gpus": 4}), ("share", {"weight": 2}), ("caps", {"editor": {"gpus": 1}})]
    for what, body in changes:
        assert root.http.put(f"{path}/{what}", json=body).status_code == 200
        assert "local" in asked()
        assert not asked()


def test_in_a_project_with_caps_other_roles_have_the_queues_planned_again(
    api: Api, root: Person, ann: Person, bob: Person
) -> None:
    def asked() -> set[str]:
        with api.context.database.transaction() as session:
            return set(session.scalars(delete(QueueChange).returning(QueueChange.engine)))

    path = f"/api/v1/projects/{ann.project}"
    ann.submit()
    asked()
    assert ann.http.put(f"{path}/members/{bob.name}", json={"role": "viewer"}).status_code == 200
    assert not asked(), "roles make no difference"
    assert root.http.put(f"{path}/caps", json={"editor": {"gpus": 1}}).status_code == 200
    assert "local" in asked()
    assert ann.http.put(f"{path}/members/{bob.name}", json={"role": "editor"}).status_code == 200
    assert asked() == {"local"}
    assert ann.http.delete(f"{path}/members/{bob.name}").status_code == 204
    assert asked() == {"local"}


def test_a_quota_and_what_is_used_of_it(api: Api, root: Person, ann: Person) -> None:
    path = f"/api/v1/projects/{ann.project}/quota"
    nothing: dict[str, Any] = {"cpus": None, "gpus": None, "memory": None, "jobs": None}
    unused = {"cpus": 0, "gpus": 0, "memory": 0, "jobs": 0}
    assert ann.http.get(path).json() == nothing | {"used": unused}
    assert root.http.put(path, json={"gpus": 4, "jobs": 2}).json() == nothing | {"gpus": 4, "jobs": 2, "used": unused}
    job = ann.submit()
    assert ann.http.get(path).json()["used"] == unused, "it only waits"
    attempt = api.attempt(job["id"])
    assert ann.http.get(path).json()["used"] == {"cpus": 1, "gpus": 0, "memory": 1 << 30, "jobs": 1}
    api.end_attempt(attempt)
    assert ann.http.get(path).json()["used"] == unused
    for bad in ({"gpus": -1}, {"cpus": "NaN"}, {"gpus": 1.5}, {"jobs": False}, {"disks": 1}):
        assert refused(root.http.put(path, json=bad)) == (400, "invalid_request")
    assert root.http.put(path, json={}).json() == nothing | {"used": unused}


def test_a_share_and_what_is_used_of_it(api: Api, root: Person, ann: Person) -> None:
    path = f"/api/v1/projects/{ann.project}/share"
    nothing: dict[str, Any] = {"cpus": None, "gpus": None, "memory": None}
    shown = ann.http.get(path).json()
    assert (shown["weight"], shown["guaranteed"], shown["borrow"], shown["used"]) == (1, nothing, True, 0)
    body = {"weight": 3, "guaranteed": {"gpus": 8}, "borrow": False}
    assert refused(ann.http.put(path, json=body)) == (403, "forbidden"), "administrators only"
    shown = root.http.put(path, json=body).json()
    assert (shown["weight"], shown["guaranteed"], shown["borrow"]) == (3, nothing | {"gpus": 8}, False)
    assert 0 < shown["share"] <= 1
    assert ann.http.get(path).json() == shown
    api.set_attempt(api.attempt(ann.submit()["id"]), created_at=func.now() - timedelta(days=1))
    assert ann.http.get(path).json()["used"] > 0
    for bad in ({"weight": 0}, {"weight": "NaN"}, {"guaranteed": {"jobs": 1}}, {"guaranteed": {"gpus": -1}}):
        assert refused(root.http.put(path, json=bad)) == (400, "invalid_request")
    assert root.http.put(path, json={}).json()["guaranteed"] == nothing


def test_caps_are_the_owners_affair_and_lower_a_priority(api: Api, ann: Person, bob: Person) -> None:
    editor = api.person("editor", ann.project_id)
    path = f"/api/v1/projects/{ann.project}/caps"
    assert ann.http.get(path).json() == {"editor": None, "owner": None}
    body = {"editor": {"priority": 40, "gpus": 4}}
    assert refused(editor.http.put(path, json=body)) == (403, "forbidden")
    assert refused(bob.http.put(path, json=body)) == (404, "not_found")
    nothing: dict[str, Any] = {"cpus": None, "gpus": None, "memory": None, "jobs": None, "priority": None}
    assert ann.http.put(path, json=body).json() == {"editor": nothing | {"priority": 40, "gpus": 4}, "owner": None}
    lowered = editor.submit(HELLO + "priority: 90\n")
    assert lowered["priority"] == 40
    events = editor.http.get(f"/api/v1/jobs/{lowered['id']}/events").json()["events"]
    warning = f"priority 90 was lowered to 40, the most for the role editor in project {ann.project}"
    assert warning in [event["message"] for event in events]
    assert editor.submit(HELLO + "priority: 30\n")["priority"] == 30
    assert ann.submit(HELLO + "priority: 90\n")["priority"] == 90, "owners have no cap"
    wrong: list[dict[str, Any]] = [{"viewer": {}}, {"editor": {"priority": 101}}, {"editor": {"disks": 1}}]
    for bad in wrong:
        assert refused(ann.http.put(path, json=bad)) == (400, "invalid_request")
    assert ann.http.put(path, json={}).json() == {"editor": None, "owner": None}
    assert editor.submit(HELLO + "priority: 90\n")["priority"] == 90
