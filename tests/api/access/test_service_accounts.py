"""Accounts of a project for machines."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import select
from tests.api.conftest import HELLO, PASSWORD, Api, Person, code_of

from weft_core.store.models import AuditRecord, Project

_OURS = {"X-Weft-Session": "1"}


def account(person: Person, name: str = "ci", role: str = "editor") -> dict[str, Any]:
    answer = person.http.post("/api/v1/service-accounts", json={"name": name, "role": role})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def token(api: Api, by: httpx.Client, name: str = "ci", **body: Any) -> httpx.Client:
    answer = by.post(f"/api/v1/service-accounts/{name}/tokens", json={"name": "test", **body}, headers=_OURS)
    assert answer.status_code == 201, answer.text
    return api.client(answer.json()["token"])


def test_an_account_works_by_its_tokens_under_its_name(api: Api, ann: Person) -> None:
    made = account(ann)
    assert (made["user"], made["role"], made["tokens"]) == (f"service:ci@{ann.project}", "editor", 0)
    machine = token(api, ann.http)
    me = {"user": made["user"], "project": ann.project, "role": "editor", "budget": None}
    assert machine.get("/api/v1/me").json() == me
    job = machine.post("/api/v1/jobs", json={"manifest": HELLO})
    assert job.status_code == 201, job.text
    assert [entry["tokens"] for entry in ann.http.get("/api/v1/service-accounts").json()["service_accounts"]] == [1]
    with api.context.database.transaction() as session:
        query = select(AuditRecord).where(AuditRecord.object_id == job.json()["id"])
        record = session.scalars(query).one()
        assert (record.actor, record.user, record.action) == ("token", made["user"], "jobs.submit")


def test_a_deleted_account_has_no_tokens_and_comes_back_without_them(api: Api, ann: Person) -> None:
    account(ann)
    machine = token(api, ann.http)
    machine.post("/api/v1/jobs", json={"manifest": HELLO})
    assert ann.http.delete("/api/v1/service-accounts/ci").status_code == 204
    assert machine.get("/api/v1/me").status_code == 401
    assert ann.http.delete("/api/v1/service-accounts/ci").status_code == 404
    assert ann.http.get("/api/v1/service-accounts").json()["service_accounts"] == []
    assert account(ann, role="viewer")["role"] == "viewer"
    assert machine.get("/api/v1/me").status_code == 401
    assert token(api, ann.http).get("/api/v1/me").json()["role"] == "viewer"
    answer = ann.http.post("/api/v1/service-accounts", json={"name": "ci", "role": "viewer"})
    assert (answer.status_code, code_of(answer)) == (409, "already_exists")


def test_a_token_has_no_higher_role_than_its_account(api: Api, ann: Person) -> None:
    account(ann)
    answer = ann.http.post("/api/v1/service-accounts/ci/tokens", json={"name": "x", "role": "owner"})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    reads = token(api, ann.http, role="viewer", expires_in_days=1)
    assert reads.get("/api/v1/me").json()["role"] == "viewer"
    assert reads.post("/api/v1/jobs", json={"manifest": HELLO}).status_code == 403


@pytest.mark.parametrize("role", ["viewer", "editor"])
def test_owners_alone_manage_accounts(api: Api, ann: Person, role: str) -> None:
    account(ann)
    other = api.person(role, ann.project_id)
    body = {"name": "more", "role": "viewer"}
    assert other.http.post("/api/v1/service-accounts", json=body).status_code == 403
    assert other.http.post("/api/v1/service-accounts/ci/tokens", json={"name": "x"}).status_code == 403
    assert other.http.delete("/api/v1/service-accounts/ci").status_code == 403
    assert len(other.http.get("/api/v1/service-accounts").json()["service_accounts"]) == 1


def test_another_project_has_accounts_of_its_own(api: Api, ann: Person, bob: Person) -> None:
    account(ann)
    assert bob.http.get("/api/v1/service-accounts").json()["service_accounts"] == []
    assert bob.http.delete("/api/v1/service-accounts/ci").status_code == 404
    assert bob.http.post("/api/v1/service-accounts/ci/tokens", json={"name": "x"}).status_code == 404
    account(bob)
    assert token(api, bob.http).get("/api/v1/me").json()["project"] == bob.project


def test_an_account_does_not_sign_in(api: Api, ann: Person) -> None:
    name = account(ann)["user"]
    machine = token(api, ann.http)
    plain = machine.headers["Authorization"].removeprefix("Bearer ")
    for body in ({"token": plain}, {"user": name, "password": PASSWORD}):
        answer = api.client().post("/api/v1/session", json=body)
        assert answer.status_code in (401, 403)
        assert "set-cookie" not in answer.headers
    assert machine.post("/api/v1/session/links").status_code == 403


def test_an_account_is_no_person(api: Api, ann: Person, root: Person) -> None:
    """It is no member and can't be a project's last owner, and an administrator gives it no password."""
    name = account(ann, role="owner")["user"]
    members = [entry["user"] for entry in ann.http.get(f"/api/v1/projects/{ann.project}/members").json()["members"]]
    assert members == [ann.name]
    assert [entry["members"] for entry in ann.http.get("/api/v1/projects").json()["projects"]] == [1]
    path = f"/api/v1/projects/{ann.project}/members"
    assert ann.http.delete(f"{path}/{ann.name}").status_code == 409, "the last owner"
    assert ann.http.put(f"{path}/{name}", json={"role": "owner"}).status_code == 404
    assert ann.http.delete(f"{path}/{name}").status_code == 404
    assert root.http.patch(f"/api/v1/users/{name}", json={"password": PASSWORD}).status_code == 404
    assert name not in [entry["name"] for entry in root.http.get("/api/v1/users").json()["users"]]
    assert root.http.put(f"/api/v1/projects/{root.project}/members/{name}", json={"role": "viewer"}).status_code == 404


def test_what_a_token_makes_ends_with_it_and_a_password_makes_more(api: Api, ann: Person) -> None:
    account(ann)
    by_token = token(api, ann.http)
    browser = api.client()
    browser.post("/api/v1/session", json={"user": ann.name, "password": PASSWORD, "project": ann.project})
    by_password = token(api, browser)
    mine = next(entry["id"] for entry in ann.http.get("/api/v1/tokens").json()["tokens"] if entry["user"] == ann.name)
    assert ann.http.delete(f"/api/v1/tokens/{mine}").status_code == 204
    assert by_token.get("/api/v1/me").status_code == 401
    assert by_password.get("/api/v1/me").status_code == 200


def test_an_owners_token_of_a_lower_role_makes_none(api: Api, ann: Person) -> None:
    account(ann)
    editor = api.client(ann.http.post("/api/v1/tokens", json={"name": "x", "role": "editor"}).json()["token"])
    assert editor.post("/api/v1/service-accounts/ci/tokens", json={"name": "x"}).status_code == 403


@pytest.mark.parametrize("name", ["", "CI", "a@b", "a/b", "-a", "a" * 64, "ü", "\0"])
def test_names_are_plain(ann: Person, name: str) -> None:
    answer = ann.http.post("/api/v1/service-accounts", json={"name": name, "role": "viewer"})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")


def test_a_project_may_be_deleted_with_its_accounts(api: Api, root: Person, ann: Person) -> None:
    account(ann)
    token(api, ann.http)
    assert root.http.delete(f"/api/v1/projects/{ann.project}").status_code == 204
    with api.context.database.transaction() as session:
        assert session.get(Project, ann.project_id) is None
