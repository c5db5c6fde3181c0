"""Browsers' sessions: a cookie in place of a token, and its protection from foreign pages."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select, text, update
from starlette.websockets import WebSocket
from tests.api.conftest import HELLO, PASSWORD, Api, Person, code_of

from weft_api.access import sign_in_limits
from weft_api.access.auth import Viewer
from weft_api.access.sign_in_limits import SIGN_IN_LIMITS, SignInLimits
from weft_api.http.problems import Problem
from weft_core.store.models import Member, Project, Token, User

_OURS = {"X-Weft-Session": "1"}


def sign_in(api: Api, **body: Any) -> httpx.Client:
    """A browser that has signed in."""
    browser = api.client()
    answer = browser.post("/api/v1/session", json=body)
    assert answer.status_code == 200, answer.text
    return browser


def by_password(api: Api, person: Person) -> httpx.Client:
    return sign_in(api, user=person.name, password=PASSWORD)


def ends(browser: httpx.Client) -> datetime:
    return datetime.fromisoformat(browser.get("/api/v1/session").json()["expires_at"])


def set_session(api: Api, person: Person, **values: Any) -> None:
    with api.context.database.transaction() as session:
        wanted = update(Token).where(Token.user_id == person.user_id, Token.kind == "browser")
        session.execute(wanted.values(**values))


def test_a_browser_signs_in_works_and_signs_out(api: Api, ann: Person) -> None:
    browser = api.client()
    assert browser.get("/api/v1/session").status_code == 401
    answer = browser.post("/api/v1/session", json={"user": ann.name, "password": PASSWORD})
    cookie = answer.headers["set-cookie"]
    assert re.match(r"weft_session=weft_s_[\w-]{43}; ", cookie)
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/api/v1", "Max-Age=604800"):
        assert attribute in cookie, cookie
    assert "Secure" not in cookie, "of http://127.0.0.1"
    view = answer.json()
    expires_at = datetime.fromisoformat(view.pop("expires_at"))
    assert 11.9 < (expires_at - datetime.now(expires_at.tzinfo)).total_seconds() / 3600 <= 12
    owned = {"name": ann.project, "role": "owner"}
    assert view == {"user": ann.name, "project": ann.project, "role": "owner", "projects": [owned], "admin": False}

    assert browser.get("/api/v1/session").json()["user"] == ann.name
    job = browser.post("/api/v1/jobs", json={"manifest": HELLO}, headers=_OURS).json()
    with browser.stream("GET", f"/api/v1/jobs/{job['id']}/logs/follow") as stream:
        assert stream.status_code == 200, "EventSource sends cookies, too"
        assert next(stream.iter_lines())
    assert browser.get(f"/api/v1/jobs/{job['id']}").status_code == 200

    plain = browser.cookies["weft_session"]
    assert api.client(plain).get("/api/v1/me").status_code == 401, "a session is no bearer token"
    listed = ann.http.get("/api/v1/tokens")
    (row,) = [token for token in listed.json()["tokens"] if token["kind"] == "browser"]
    assert plain not in listed.text
    assert row["name"].startswith("python-httpx")

    gone = browser.delete("/api/v1/session", headers=_OURS)
    assert gone.status_code == 204
    assert 'weft_session=""' in gone.headers["set-cookie"]
    stolen = api.client().get("/api/v1/session", headers={"Cookie": f"weft_session={plain}"})
    assert (stolen.status_code, stolen.json()["detail"]) == (401, "your session has ended; sign in again")
    assert "browser" not in {token["kind"] for token in ann.http.get("/api/v1/tokens").json()["tokens"]}


def test_a_change_needs_the_header_that_foreign_pages_cannot_send(api: Api, ann: Person) -> None:
    browser = by_password(api, ann)
    refused = [
        browser.post("/api/v1/jobs", json={"manifest": HELLO}),
        browser.post("/api/v1/jobs", data={"manifest": HELLO}, files={"code": b"x"}),
        browser.put("/api/v1/secrets/x", json={"value": "y"}),
        browser.delete("/api/v1/session", headers={"X-Weft-Session": "0"}),
        api.client().post(
            "/api/v1/session",
            json={"user": ann.name, "password": PASSWORD},
            headers={"Origin": "https://evil.example"},
        ),
    ]
    assert [(answer.status_code, code_of(answer)) for answer in refused] == [(403, "cross_site")] * len(refused)
    assert ann.http.put("/api/v1/secrets/x", json={"value": "y"}).status_code == 200, "a token needs none"
    mixed = browser.put("/api/v1/secrets/x", json={"value": "y"}, headers={"Authorization": f"Bearer {ann.token}"})
    assert mixed.status_code == 200, "the token goes first"
    assert browser.get("/api/v1/me", headers={"Authorization": "Bearer weft_u_wrong"}).status_code == 401
    assert browser.get("/api/v1/learner/spec").status_code in {401, 404, 405}


def test_a_websocket_by_cookie_is_opened_by_our_own_pages_only(api: Api, ann: Person) -> None:
    app = api.app

    @app.websocket("/api/v1/test/ws")
    async def echo(socket: WebSocket, who: Viewer) -> None:
        await socket.accept()
        await socket.send_text(who.user)
        await socket.close()

    browser = by_password(api, ann)
    host = api.url.removeprefix("http://")
    shake = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }

    def status(http: httpx.Client, **headers: str) -> int:
        with http.stream("GET", "/api/v1/test/ws", headers=shake | headers) as answer:
            return answer.status_code

    try:
        assert status(browser, Origin=f"http://{host}") == 101
        assert status(browser, Origin="https://evil.example") == 403
        assert status(browser) == 403, "every browser tells where it comes from"
        assert status(ann.http) == 101, "a program with a token need not"
        assert status(api.client()) == 401
    finally:
        app.router.routes.pop()


def test_sessions_slide_and_end(api: Api, ann: Person) -> None:
    browser = by_password(api, ann)
    first = ends(browser)
    set_session(api, ann, last_used_at=func.now() - text("interval '2 minutes'"), expires_at=func.now() + text("'1h'"))
    browser.get("/api/v1/me")
    assert ends(browser) >= first, "its use moved the end on"
    set_session(api, ann, last_used_at=None, ends_at=func.now() + text("interval '1 hour'"))
    browser.get("/api/v1/me")
    assert (first - ends(browser)).total_seconds() > 10 * 3600, "but not past a week"
    set_session(api, ann, expires_at=func.now())
    assert browser.get("/api/v1/session").status_code == 401
    browser = by_password(api, ann)
    with api.context.database.transaction() as session:
        session.execute(update(User).where(User.id == ann.user_id).values(disabled_at=func.now()))
    assert browser.get("/api/v1/session").status_code == 401


def test_a_session_goes_with_the_token_that_opened_it(api: Api, ann: Person) -> None:
    made = ann.http.post("/api/v1/tokens", json={"name": "phone", "expires_in_days": 1}).json()
    browser = sign_in(api, token=made["token"])
    set_session(api, ann, last_used_at=None)
    browser.get("/api/v1/me")
    with api.context.database.transaction() as session:
        row = session.scalars(select(Token).where(Token.opened_with == made["id"])).one()
        assert str(row.ends_at) == str(session.get_one(Token, made["id"]).expires_at)
    assert ann.http.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    assert browser.get("/api/v1/session").status_code == 401
    for body in ({"token": made["token"]}, {"token": "x"}, {"token": "weft_s_x"}):
        assert api.client().post("/api/v1/session", json=body).status_code == 401
    for body in ({}, {"user": "x"}, {"user": "x", "password": "p4ssw0rd", "token": "t0k3n"}):
        answer = api.client().post("/api/v1/session", json=body)
        assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
        assert not re.search("p4ssw0rd|t0k3n", answer.text)


def test_a_token_of_one_project_opens_no_other(api: Api, ann: Person, bob: Person) -> None:
    """A viewer's token for a day, of a user who owns another project, never becomes more than that."""
    with api.context.database.transaction() as session:
        session.add(Member(project_id=bob.project_id, user_id=ann.user_id, role="viewer"))
    own = by_password(api, ann)
    own.put("/api/v1/session/project", json={"project": bob.project}, headers=_OURS)
    parent = own.post("/api/v1/tokens", json={"name": "day", "expires_in_days": 1}, headers=_OURS).json()
    http = api.client(parent["token"])

    refused = [api.client().post("/api/v1/session", json={"token": parent["token"], "project": ann.project})]
    browser = sign_in(api, token=parent["token"])
    linked = sign_in(api, link=http.post("/api/v1/session/links").json()["path"].partition("#")[2])
    members = f"/api/v1/projects/{ann.project}/members"
    for client in (browser, linked, http):
        view = client.get("/api/v1/session").json()
        assert view["projects"] == [{"name": bob.project, "role": "viewer"}]
        refused += [
            client.put("/api/v1/session/project", json={"project": ann.project}, headers=_OURS),
            client.put(f"{members}/{bob.name}", json={"role": "owner"}, headers=_OURS),
            client.delete(f"{members}/{ann.name}", headers=_OURS),
        ]
    assert [(answer.status_code, code_of(answer)) for answer in refused] == [(403, "forbidden")] * len(refused)


def test_what_a_token_creates_ends_with_it(api: Api, ann: Person) -> None:
    parent = ann.http.post("/api/v1/tokens", json={"name": "day", "expires_in_days": 1}).json()
    http = api.client(parent["token"])
    browser = sign_in(api, token=parent["token"])
    children = [
        client.post("/api/v1/tokens", json={"name": "child"} | days, headers=_OURS).json()
        for client in (http, browser)
        for days in ({}, {"expires_in_days": 30})
    ]
    assert {child["expires_at"] for child in children} == {parent["expires_at"]}
    grandchild = api.client(children[-1]["token"]).post("/api/v1/tokens", json={"name": "grandchild"}).json()
    free = by_password(api, ann).post("/api/v1/tokens", json={"name": "ci"}, headers=_OURS).json()
    assert (grandchild["expires_at"], free["expires_at"]) == (parent["expires_at"], None)

    assert browser.delete("/api/v1/session", headers=_OURS).status_code == 204
    made = [http, *(api.client(child["token"]) for child in (*children, grandchild))]
    assert {client.get("/api/v1/me").status_code for client in made} == {200}, "signing out ends no token"
    assert ann.http.delete(f"/api/v1/tokens/{parent['id']}").status_code == 204
    assert {client.get("/api/v1/me").status_code for client in made} == {401}
    assert api.client(free["token"]).get("/api/v1/me").status_code == 200


def test_a_token_sets_no_first_password(api: Api, ann: Person) -> None:
    with api.context.database.transaction() as session:
        session.execute(update(User).where(User.id == ann.user_id).values(password_hash=None))
    answer = ann.http.patch(f"/api/v1/users/{ann.name}", json={"password": "a longer password"})
    assert (answer.status_code, code_of(answer)) == (403, "forbidden")


def test_an_administrators_token_opens_all_their_projects_and_ends_all_it_made(
    api: Api, ann: Person, bob: Person
) -> None:
    with api.context.database.transaction() as session:
        session.add(Member(project_id=bob.project_id, user_id=ann.user_id, role="viewer"))
        session.execute(update(User).where(User.id == ann.user_id).values(is_admin=True))
    parent = ann.http.post("/api/v1/tokens", json={"name": "day", "expires_in_days": 1}).json()
    browser = sign_in(api, token=parent["token"])
    assert browser.put("/api/v1/session/project", json={"project": bob.project}, headers=_OURS).status_code == 200
    child = browser.post("/api/v1/tokens", json={"name": "child"}, headers=_OURS).json()
    assert (child["project"], child["expires_at"]) == (bob.project, parent["expires_at"])
    assert ann.http.delete(f"/api/v1/tokens/{parent['id']}").status_code == 204
    assert api.client(child["token"]).get("/api/v1/me").status_code == 401


def test_a_session_switches_between_the_projects_of_its_user(api: Api, ann: Person, bob: Person) -> None:
    with api.context.database.transaction() as session:
        session.add(Member(project_id=bob.project_id, user_id=ann.user_id, role="viewer"))
    job = bob.submit()
    ann.http.get("/api/v1/me")
    browser = by_password(api, ann)
    assert browser.get("/api/v1/session").json()["project"] == ann.project, "where she was last"
    assert browser.get(f"/api/v1/jobs/{job['id']}").status_code == 404
    view = browser.put("/api/v1/session/project", json={"project": bob.project}, headers=_OURS).json()
    assert (view["project"], view["role"], len(view["projects"])) == (bob.project, "viewer", 2)
    assert browser.get(f"/api/v1/jobs/{job['id']}").status_code == 200
    refused = browser.post("/api/v1/jobs", json={"manifest": HELLO}, headers=_OURS)
    assert (refused.status_code, code_of(refused)) == (403, "forbidden")
    with api.context.database.transaction() as session:
        session.add(Project(id="prj-other", name="other"))
    for name in ("other", "nowhere"):
        assert browser.put("/api/v1/session/project", json={"project": name}, headers=_OURS).status_code == 404
    for answer in (
        ann.http.put("/api/v1/session/project", json={"project": bob.project}),
        ann.http.delete("/api/v1/session"),
    ):
        assert (answer.status_code, code_of(answer)) == (403, "forbidden")


@pytest.mark.slow
def test_passwords_are_guessed_only_so_often(api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    # A guess that Redis takes longer over than the service waits is not counted.
    monkeypatch.setattr(sign_in_limits, "_PATIENCE", 60.0)
    here = SignInLimits(api.settings.redis_url.get_secret_value())
    monkeypatch.setattr(SIGN_IN_LIMITS.of(api.context), "_redis", here._redis)

    def attempt(password: str, path: str = "session") -> httpx.Response:
        return api.client().post(f"/api/v1/{path}", json={"user": ann.name, "password": password})

    for path in ("session", "login"):
        assert [attempt("wrong", path).status_code for _ in range(4)] == [401] * 4
    assert attempt(PASSWORD).status_code == 200, "the right one begins the count anew"
    assert [attempt("wrong").status_code for _ in range(10)] == [401] * 10
    refused = attempt(PASSWORD)
    assert (refused.status_code, code_of(refused)) == (429, "too_many_attempts")
    assert 0 < int(refused.headers["retry-after"]) <= 300
    assert ann.http.get("/api/v1/me").status_code == 200, "who is in stays in"
    away = SignInLimits("redis://127.0.0.1:1/0")
    for _ in range(20):
        away.begin(ann.name, "127.0.0.1")
    for number in range(100):
        here.begin("everyone's victim", f"192.0.2.{number}")
    with pytest.raises(Problem, match="try again"):
        here.begin("everyone's victim", "192.0.2.200")


def test_the_cookie_of_an_https_installation_is_sent_over_https_only(
    api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"user": ann.name, "password": PASSWORD}
    for public_url, secure in (("https://weft.example", True), ("http://weft.example", False)):
        for setting in (None, not secure):
            changed = api.settings.api.model_copy(update={"public_url": public_url, "secure_cookie": setting})
            monkeypatch.setattr(api.settings, "api", changed)
            cookie = api.client().post("/api/v1/session", json=body).headers["set-cookie"]
            assert ("Secure" in cookie) == (secure if setting is None else setting)
