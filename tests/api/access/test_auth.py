"""Permissions: tokens, roles, and walls between projects."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, update
from tests.api.conftest import HELLO, PASSWORD, Api, Person, code_of

from weft_core.ids import new_id
from weft_core.store import registry
from weft_core.store.models import Delivery, Event, Job, Member, Token, User
from weft_core.store.scope import Scope


def test_me(ann: Person) -> None:
    assert ann.http.get("/api/v1/me").json() == {
        "user": ann.name,
        "project": ann.project,
        "role": "owner",
        "budget": None,
    }


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic eDp5", "Bearer weft_u_", "Bearer weft_u_\xff", "x"])
def test_no_token_no_entry(api: Api, header: str | None) -> None:
    headers = {b"Authorization": header.encode("latin-1")} if header is not None else {}
    answer = api.client().get("/api/v1/me", headers=headers)
    assert (answer.status_code, code_of(answer)) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_tokens_are_shown_once_and_can_be_revoked(api: Api, ann: Person) -> None:
    answer = ann.http.post("/api/v1/tokens", json={"name": "ci", "expires_in_days": 1})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    other = api.client(made["token"])
    assert other.get("/api/v1/me").json()["user"] == ann.name
    listed = ann.http.get("/api/v1/tokens")
    assert made["token"] not in listed.text
    assert {token["name"] for token in listed.json()["tokens"]} == {"test", "ci"}
    assert other.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    assert other.get("/api/v1/me").status_code == 401
    assert ann.http.delete(f"/api/v1/tokens/{made['id']}").status_code == 404


def test_expired_tokens_and_disabled_users(api: Api, ann: Person) -> None:
    made = ann.http.post("/api/v1/tokens", json={"name": "old", "expires_in_days": 1}).json()
    with api.context.database.transaction() as session:
        session.execute(update(Token).where(Token.id == made["id"]).values(expires_at=func.now()))
    assert api.client(made["token"]).get("/api/v1/me").status_code == 401
    with api.context.database.transaction() as session:
        session.execute(update(User).where(User.id == ann.user_id).values(disabled_at=func.now()))
    assert ann.http.get("/api/v1/me").status_code == 401


def test_a_member_that_was_removed_is_out(api: Api, ann: Person) -> None:
    with api.context.database.transaction() as session:
        session.delete(session.get_one(Member, (ann.project_id, ann.user_id)))
    assert ann.http.get("/api/v1/me").status_code == 401


def test_the_last_use_is_noted_at_most_once_a_minute(api: Api, ann: Person) -> None:
    def last() -> Any:
        return ann.http.get("/api/v1/tokens").json()["tokens"][0]["last_used_at"]

    first = last()
    assert first is not None
    assert last() == first
    with api.context.database.transaction() as session:
        earlier = func.now() - func.make_interval(0, 0, 0, 0, 0, 2)
        session.execute(update(Token).where(Token.user_id == ann.user_id).values(last_used_at=earlier))
    assert last() > first


def test_login(api: Api, ann: Person) -> None:
    post = api.client().post
    body = {"user": ann.name, "password": PASSWORD}
    answer = post("/api/v1/login", json=body)
    assert answer.status_code == 200, answer.text
    assert api.client(answer.json()["token"]).get("/api/v1/me").json()["project"] == ann.project
    refusals = [
        post("/api/v1/login", json=body | {"password": "wrong"}),
        post("/api/v1/login", json={"user": "no one at all", "password": PASSWORD}),
    ]
    assert [(refusal.status_code, refusal.json()["detail"]) for refusal in refusals] == [
        (401, "wrong user name or password")
    ] * 2
    assert post("/api/v1/login", json=body | {"project": "another"}).status_code == 401
    assert PASSWORD not in post("/api/v1/login", json={"user": "", "password": PASSWORD}).text
    with api.context.database.transaction() as session:
        session.add(Member(project_id=api.person().project_id, user_id=ann.user_id, role="viewer"))
    answer = post("/api/v1/login", json=body)
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert ann.project in answer.json()["problems"][0]["accepted"]
    answer = post("/api/v1/login", json=body | {"project": ann.project})
    assert answer.json()["project"] == ann.project


def test_viewers_read_and_editors_write(api: Api, ann: Person) -> None:
    job = ann.submit()
    viewer = api.person("viewer", ann.project_id).http
    for path in ("jobs", f"jobs/{job['id']}", f"jobs/{job['id']}/logs", "secrets", "datastores", "engines", "tokens"):
        assert viewer.get(f"/api/v1/{path}").status_code == 200, path
    store = {"name": "x", "endpoint": "http://127.0.0.1:9", "user_name": "a", "password": "b"}
    writes = [
        viewer.post("/api/v1/jobs", json={"manifest": HELLO}),
        viewer.post("/api/v1/jobs", data={"manifest": HELLO}, files={"code": b"x"}),
        viewer.post(f"/api/v1/jobs/{job['id']}/halt"),
        viewer.post(f"/api/v1/jobs/{job['id']}/rerun"),
        viewer.delete(f"/api/v1/jobs/{job['id']}"),
        viewer.put(f"/api/v1/code/{'0' * 64}", content=b"x"),
        viewer.put("/api/v1/secrets/x", json={"value": "y"}),
        viewer.post("/api/v1/datastores", json=store),
    ]
    assert [(answer.status_code, code_of(answer)) for answer in writes] == [(403, "forbidden")] * len(writes)
    assert "editor" in writes[0].json()["detail"]
    assert api.person("editor", ann.project_id).submit()["user"] != ann.name


def test_tokens_of_others_are_the_owners_affair(api: Api, ann: Person) -> None:
    editor = api.person("editor", ann.project_id)
    other = api.person("editor", ann.project_id)
    (token,) = editor.http.get("/api/v1/tokens").json()["tokens"]
    assert other.http.delete(f"/api/v1/tokens/{token['id']}").status_code == 404
    assert token["id"] in {row["id"] for row in ann.http.get("/api/v1/tokens").json()["tokens"]}
    assert ann.http.delete(f"/api/v1/tokens/{token['id']}").status_code == 204
    assert editor.http.get("/api/v1/me").status_code == 401


# --- walls -----------------------------------------------------------------------------------------------------------

_SWEEP = f"{HELLO}\nsweep: {{parameters: {{lr: [0.1, 0.2]}}, metric: loss, trials: 2}}\n"
# Of the routes with an id in them; every other body is refused before the id is looked at.
_BODIES: dict[str, dict[str, Any]] = {
    "PUT /api/v1/projects/{name}/share": {"weight": 1},
    "PUT /api/v1/projects/{name}/caps": {"editor": None},
    "PUT /api/v1/projects/{name}/retention": {},
    "PUT /api/v1/projects/{name}/tunnels": {"allowed": False},
    "PUT /api/v1/sweeps/{sweep_id}/trials/{number}/result": {"value": 1.0},
    "POST /api/v1/device/{user_code}/confirm": {},
    "POST /api/v1/service-accounts/{name}/tokens": {"name": "ci"},
    "PUT /api/v1/datastores/{name}": {"endpoint": "http://127.0.0.1:9", "user_name": "a", "password": "b"},
    "POST /api/v1/datastores/{name}/uploads": {"container": "abc", "key": "k", "size": 1},
    "POST /api/v1/datastores/{name}/uploads:complete": {
        "container": "abc",
        "key": "k",
        "upload_id": "u",
        "etags": ["e"],
    },
    "POST /api/v1/datastores/{name}/downloads": {"container": "abc", "key": "k"},
    "POST /api/v1/models/{name}/versions": {"job": "job-000000000000"},
    "PATCH /api/v1/models/{name}/versions/{version}": {"notes": "x"},
    "PUT /api/v1/models/{name}/stages/{stage}": {"version": "1"},
    "PATCH /api/v1/users/{name}": {"disabled": True},
    "PATCH /api/v1/jobs/{job_id}": {"pinned": True},
    "PUT /api/v1/views/{name}": {"query": "state=FAILED"},
    "PUT /api/v1/projects/{name}/members/{user}": {"role": "owner"},
    "PUT /api/v1/projects/{name}/quota": {"jobs": 1},
}
_QUERIES = {
    "GET /api/v1/jobs/{job_id}/logs/search": {"q": "x"},
    "GET /api/v1/datastores/{name}/objects:preview": {"container": "abc", "key": "x"},
}
# A PUT under a name makes an object of the caller's own, so it reads nobody else's.
_OWN = {"PUT /api/v1/secrets/{name}", "PUT /api/v1/views/{name}", "PUT /api/v1/code/{sha256}"}


def test_everything_of_another_project_is_not_found(api: Api, ann: Person, bob: Person) -> None:
    """Every route of the OpenAPI document that has an id in it, also those that are yet to be written."""
    ann.http.put("/api/v1/secrets/mine", json={"value": "x"})
    store = {"name": "mine", "endpoint": api.settings.s3.endpoint, "user_name": "a", "password": "b"}
    assert ann.http.post("/api/v1/datastores?check=false", json=store).status_code == 201
    job = ann.submit()
    sweep = ann.http.post("/api/v1/sweeps", json={"manifest": _SWEEP}).raise_for_status().json()
    times = {"manifest": HELLO, "set": {"schedule": "0 3 * * *"}}
    schedule = ann.http.post("/api/v1/schedules", json=times).raise_for_status().json()
    with api.context.database.transaction() as session:
        model, version, _ = registry.register(session, session.get_one(Job, job["id"]), "mine")
        registry.promote(Scope(session, ann.project_id), model, "production", version.number, ann.user_id)
        event = session.query(Event).filter_by(job_id=job["id"]).order_by(Event.id).limit(1).one()
        delivery = new_id("dlv")
        row = Delivery(id=delivery, project_id=ann.project_id, job_id=job["id"], event_id=event.id, target=0)
        session.add(row)
    token = ann.http.get("/api/v1/tokens").json()["tokens"][0]["id"]
    values = {
        "job_id": job["id"],
        "delivery_id": delivery,
        "name": "mine",
        "token_id": token,
        "sha256": "0" * 64,
        "path": "model.pt",
        "container": "abc",
        "version": "1",
        "stage": "production",
        "user": bob.name,
        "user_code": "BBBB-BBBB",
        "sweep_id": sweep["id"],
        "number": "0",
        "schedule_id": schedule["id"],
        "node": "n1",
    }
    routes = [
        f"{method.upper()} {path}"
        for path, operations in api.openapi["paths"].items()
        for method in operations
        if "{" in path
    ]
    assert len(routes) > 20
    for route in routes:
        if route in _OWN:
            continue
        method, path = route.split(" ")
        if "/projects/" in path or "/users/" in path:  # their names belong to the whole installation
            values["name"] = ann.project if "/projects/" in path else ann.name
        else:
            values["name"] = "mine"
        answer = bob.http.request(method, path.format(**values), json=_BODIES.get(route), params=_QUERIES.get(route))
        assert (route, answer.status_code) == (route, 404)
    assert bob.http.get("/api/v1/jobs").json()["jobs"] == []
    assert bob.http.get("/api/v1/secrets").json()["secrets"] == []
    assert bob.http.get("/api/v1/datastores").json()["datastores"] == []
    assert [row["user"] for row in bob.http.get("/api/v1/tokens").json()["tokens"]] == [bob.name]
    assert ann.http.get(f"/api/v1/jobs/{job['id']}").json()["desired"] == "RUNNING"


def test_names_are_each_projects_own(ann: Person, bob: Person) -> None:
    for person in (ann, bob):
        assert person.http.put("/api/v1/secrets/same", json={"value": person.name}).status_code == 200
    assert bob.http.delete("/api/v1/secrets/same").status_code == 204
    assert [secret["name"] for secret in ann.http.get("/api/v1/secrets").json()["secrets"]] == ["same"]


def test_secrets_go_in_and_never_out(api: Api, ann: Person) -> None:
    answer = ann.http.put("/api/v1/secrets/wandb", json={"value": "s3cr3t-value"})
    assert answer.status_code == 200
    first = answer.json()
    assert ann.http.put("/api/v1/secrets/wandb", json={"value": "other"}).json()["updated_at"] > first["updated_at"]
    for text in (answer.text, ann.http.get("/api/v1/secrets").text):
        assert "s3cr3t-value" not in text
    for bad in ({"value": 1}, {}, {"value": "x" * 70_000}, {"value": "s3cr3t-value", "more": 1}):
        answer = ann.http.put("/api/v1/secrets/wandb", json=bad)
        assert answer.status_code == 400
        assert "s3cr3t-value" not in answer.text
    for name in ("a%2Fb", "..", "%00", "a" * 64, "ü"):
        assert ann.http.put(f"/api/v1/secrets/{name}", json={"value": "x"}).status_code in {400, 404}
