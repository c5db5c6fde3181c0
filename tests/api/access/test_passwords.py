"""The queue of sign-ins: many at once hold up no other request."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import update
from tests.api.conftest import PASSWORD, Api, Person, code_of

from weft_core.hashing import Hasher
from weft_core.store.models import User
from weft_core.tokens import verify_password


def test_a_rush_of_sign_ins_holds_up_no_other_call(api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    lock = threading.Lock()
    checking = most = 0

    def held(password: str, hashed: str) -> bool:
        nonlocal checking, most
        with lock:
            checking += 1
            most = max(most, checking)
        release.wait(300)
        with lock:
            checking -= 1
        return verify_password(password, hashed)

    monkeypatch.setattr(Hasher, "verify", lambda _, password, hashed: held(password, hashed))

    def sign_in(number: int) -> tuple[int, str | None, str | None]:
        body = {"user": f"nobody-{number}", "password": "wrong"}
        with api.client() as client:
            answer = client.post("/api/v1/login", json=body, timeout=300)
        return answer.status_code, code_of(answer), answer.headers.get("retry-after")

    with ThreadPoolExecutor(60) as pool:
        try:
            answers = [pool.submit(sign_in, number) for number in range(60)]
            deadline = time.monotonic() + 300
            while (most < 2 or sum(answer.done() for answer in answers) < 50) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert ann.http.get("/api/v1/me", timeout=120).status_code == 200, "while all slots are taken"
        finally:
            release.set()
        counted = Counter(answer.result() for answer in answers)
    assert most == 2
    assert counted == {(429, "too_many_sign_ins", "2"): 50, (401, "unauthenticated", None): 10}
    body = {"user": ann.name, "password": PASSWORD}
    assert api.client().post("/api/v1/login", json=body).status_code == 200, "all places are free again"


@pytest.fixture
def admin(api: Api) -> Person:
    person = api.person()
    with api.context.database.transaction() as session:
        session.execute(update(User).where(User.id == person.user_id).values(is_admin=True))
    return person


@pytest.mark.parametrize("password", ["password1", "P@ssw0rd!", "1qaz2wsx3edc", "aaaaaaaaaaaaaaaaaa", "19840101"])
def test_passwords_that_are_easy_to_guess_are_refused(api: Api, admin: Person, password: str) -> None:
    body = {"name": "grace.hopper", "password": password}
    refused = admin.http.post("/api/v1/users", json=body)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert refused.json()["detail"].startswith("body.password: this password is easy to guess: ")
    assert password not in refused.text
    names = [user["name"] for user in admin.http.get("/api/v1/users").json()["users"]]
    assert "grace.hopper" not in names
    own = admin.http.patch(f"/api/v1/users/{admin.name}", json={"password": password, "current_password": PASSWORD})
    assert (own.status_code, own.json()["code"]) == (400, "invalid_request")
    assert api.client().post("/api/v1/login", json={"user": admin.name, "password": PASSWORD}).status_code == 200


def test_a_long_password_is_estimated_by_its_beginning(admin: Person) -> None:
    body = {"name": "long", "password": "correct horse battery staple " * 30}
    assert admin.http.post("/api/v1/users", json=body).status_code == 201


def test_a_password_is_not_the_name_of_its_user(admin: Person) -> None:
    body = {"name": "grace.hopper", "password": "grace.hopper1"}
    assert admin.http.post("/api/v1/users", json=body).status_code == 400
    assert admin.http.post("/api/v1/users", json={**body, "name": "someone"}).status_code == 201


def test_no_password_is_hashed_for_a_name_that_is_taken(admin: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    monkeypatch.setattr(Hasher, "hash", lambda _, password: hashed.append(password))
    refused = admin.http.post("/api/v1/users", json={"name": admin.name, "password": PASSWORD})
    assert (refused.status_code, code_of(refused), hashed) == (409, "already_exists", [])
