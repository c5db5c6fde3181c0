"""Secrets in bodies: every JSON string that is not valid text is refused, and no part of it is echoed."""

from __future__ import annotations

import pytest
from tests.api.conftest import Api, Person, code_of

from weft_core.store.models import User

_HALF = r"kept-\ud800-apart"
_STORE = '"endpoint": "https://s3.example.com", "user_name": "u"'


def make_admin(api: Api, person: Person) -> None:
    """Only an administrator makes users."""
    with api.context.database.transaction() as session:
        session.get_one(User, person.user_id).is_admin = True


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/login", '{"user": "ann", "password": "%s"}'),
        ("POST", "/session", '{"user": "ann", "password": "%s"}'),
        ("POST", "/session", '{"token": "%s"}'),
        ("POST", "/session", '{"link": "%s"}'),
        ("POST", "/users", '{"name": "ann", "password": "%s"}'),
        ("PATCH", "/users/ann", '{"password": "%s"}'),
        ("PATCH", "/users/ann", '{"password": "abcdefgh-1", "current_password": "%s"}'),
        ("PUT", "/secrets/api-key", '{"value": "%s"}'),
        ("POST", "/datastores", '{"name": "x", ' + _STORE + ', "password": "%s"}'),
        ("PUT", "/datastores/x", "{" + _STORE + ', "password": "p", "session_token": "%s"}'),
    ],
)
def test_half_of_a_surrogate_pair_is_refused(api: Api, ann: Person, method: str, path: str, body: str) -> None:
    make_admin(api, ann)
    headers = {"Content-Type": "application/json"}
    answer = ann.http.request(method, f"/api/v1{path}", content=body % _HALF, headers=headers)
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert "half of a surrogate pair" in answer.text
    assert "kept-" not in answer.text


def test_no_value_of_an_unknown_key_is_shown(ann: Person) -> None:
    answer = ann.http.post("/api/v1/login", json={"user": "ann", "passwrod": "kept-apart"})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert "body.passwrod" in answer.text
    assert "kept-" not in answer.text


def test_lengths_are_limited_as_before(api: Api, ann: Person) -> None:
    make_admin(api, ann)
    for path, secret in (("/users", "short"), ("/users", "x" * 1001)):
        answer = ann.http.post(f"/api/v1{path}", json={"name": "ann", "password": secret})
        assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    answer = ann.http.put("/api/v1/secrets/api-key", json={"value": "x" * 65_537})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert "xxx" not in answer.text
