"""Tokens that may do less than their users, and the tokens and sessions that they create."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import update
from tests.api.conftest import HELLO, Api, Person, code_of

from weft_core.store.models import Member, User

_OURS = {"X-Weft-Session": "1"}


def limited(api: Api, person: Person, role: str, **body: object) -> httpx.Client:
    answer = person.http.post("/api/v1/tokens", json={"name": role, "role": role, **body})
    assert answer.status_code == 201, answer.text
    assert answer.json()["role"] == role
    return api.client(answer.json()["token"])


def writes(client: httpx.Client, project: str) -> dict[str, bool]:
    """Which of these the client may do."""
    asked = {
        "submit": client.post("/api/v1/jobs", json={"manifest": HELLO}),
        "secret": client.put("/api/v1/secrets/one", json={"value": "x"}),
        "members": client.put(f"/api/v1/projects/{project}/members/nobody-of-this-name", json={"role": "viewer"}),
        "audit": client.get("/api/v1/audit"),
    }
    return {name: answer.status_code != 403 for name, answer in asked.items()}


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("viewer", set()),
        ("editor", {"submit", "secret"}),
        ("owner", {"submit", "secret", "members", "audit"}),
    ],
)
def test_a_role_is_the_most_that_a_token_may_do(api: Api, ann: Person, role: str, may: set[str]) -> None:
    client = limited(api, ann, role)
    assert client.get("/api/v1/me").json()["role"] == role
    assert client.get("/api/v1/jobs").status_code == 200
    assert {name for name, allowed in writes(client, ann.project).items() if allowed} == may


def test_nobody_makes_a_token_of_a_higher_role(api: Api, ann: Person) -> None:
    viewer, editor = limited(api, ann, "viewer"), limited(api, ann, "editor")
    for client, role in ((viewer, "editor"), (viewer, "owner"), (editor, "owner")):
        answer = client.post("/api/v1/tokens", json={"name": "x", "role": role})
        assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert editor.post("/api/v1/tokens", json={"name": "x", "role": "viewer"}).json()["role"] == "viewer"


def test_what_comes_from_a_token_may_do_no_more(api: Api, ann: Person) -> None:
    """Tokens, sessions, links and programs that it signs in."""
    viewer = limited(api, ann, "viewer")
    token = viewer.headers["Authorization"].removeprefix("Bearer ")
    made = [viewer.post("/api/v1/tokens", json={"name": "child"}).json()["token"]]
    browser = api.client()
    session = browser.post("/api/v1/session", json={"token": token}).json()
    assert (session["role"], session["projects"]) == ("viewer", [{"name": ann.project, "role": "viewer"}])
    made.append(browser.post("/api/v1/tokens", json={"name": "grandchild"}, headers=_OURS).json()["token"])
    begun = api.client().post("/api/v1/device", json={}).json()
    path = f"/api/v1/device/{begun['user_code']}/confirm"
    assert browser.post(path, json={}, headers=_OURS).status_code == 204
    polled = api.client().post("/api/v1/device:token", json={"device_code": begun["device_code"]})
    made.append(polled.json()["token"])
    secret = viewer.post("/api/v1/session/links").json()["path"].partition("#")[2]
    by_link = api.client()
    by_link.post("/api/v1/session", json={"link": secret})
    for client in (browser, by_link):
        answer = client.post("/api/v1/jobs", json={"manifest": HELLO}, headers=_OURS)
        assert code_of(answer) == "forbidden"
    for entry in made:
        assert api.client(entry).post("/api/v1/jobs", json={"manifest": HELLO}).status_code == 403


def test_a_token_with_a_role_is_no_administrators(api: Api, root: Person) -> None:
    client = limited(api, root, "owner")
    assert client.get("/api/v1/users").status_code == 403
    assert client.post("/api/v1/projects", json={"name": "more"}).status_code == 403
    assert client.patch(f"/api/v1/users/{root.name}", json={"admin": True}).status_code == 403
    assert root.http.get("/api/v1/users").status_code == 200


def test_the_users_own_role_counts_when_it_is_lower(api: Api, ann: Person) -> None:
    client = limited(api, ann, "editor")
    with api.context.database.transaction() as session:
        session.execute(update(Member).where(Member.user_id == ann.user_id).values(role="viewer"))
    assert client.get("/api/v1/me").json()["role"] == "viewer"
    assert client.post("/api/v1/jobs", json={"manifest": HELLO}).status_code == 403


def test_a_token_that_reads_ends_nothing_but_itself(api: Api, ann: Person) -> None:
    viewer = limited(api, ann, "viewer")
    mine = {entry["name"]: entry["id"] for entry in ann.http.get("/api/v1/tokens").json()["tokens"]}
    assert viewer.delete(f"/api/v1/tokens/{mine['test']}").status_code == 404
    assert viewer.delete(f"/api/v1/projects/{ann.project}/members/{ann.name}").status_code == 403
    child = viewer.post("/api/v1/tokens", json={"name": "child"}).json()["id"]
    assert viewer.delete(f"/api/v1/tokens/{child}").status_code == 204
    assert viewer.delete(f"/api/v1/tokens/{mine['viewer']}").status_code == 204
    assert viewer.get("/api/v1/me").status_code == 401
    assert ann.http.get("/api/v1/me").status_code == 200


def test_a_users_password_is_not_a_tokens_to_set(api: Api, ann: Person) -> None:
    with api.context.database.transaction() as session:
        session.execute(update(User).where(User.id == ann.user_id).values(password_hash=None))
    answer = limited(api, ann, "owner").patch(f"/api/v1/users/{ann.name}", json={"password": "correct horse battery"})
    assert answer.status_code == 403
