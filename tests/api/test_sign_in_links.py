"""Links that sign a browser in, once; and the hints for the sign-in page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx
import pytest
from sqlalchemy import Interval, delete, func, select, text, type_coerce, update
from starlette.requests import HTTPConnection
from structlog.testing import capture_logs
from tests.api.conftest import PASSWORD, Api, Person, code_of

from weft_api.access.auth import from_this_machine
from weft_core.store.models import SignInLink, Token
from weft_core.tokens import hash_token

_OURS = {"X-Weft-Session": "1"}


def make(person: Person) -> str:
    """What stands behind the # of a new link."""
    answer = person.http.post("/api/v1/session/links")
    assert answer.status_code == 201, answer.text
    page, _, secret = answer.json()["path"].partition("#")
    assert page == "/signin"
    return str(secret)


def use(api: Api, secret: str, **headers: str) -> httpx.Response:
    return api.client().post("/api/v1/session", json={"link": secret}, headers=headers)


def refused(api: Api, secret: str) -> str:
    answer = use(api, secret)
    assert (answer.status_code, code_of(answer)) == (401, "unauthenticated")
    assert "set-cookie" not in answer.headers
    assert secret not in answer.text
    return str(answer.json()["detail"])


def test_a_link_signs_in_once_as_the_user_of_the_token(api: Api, ann: Person) -> None:
    with capture_logs() as logs:
        secret = make(ann)
        answer = use(api, secret)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["user"], answer.json()["project"]) == (ann.name, ann.project)
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert refused(api, secret) == (
        "this sign-in link was used already: each signs in once; `weft login --browser` prints another"
    )
    assert secret not in str(logs)
    with api.context.database.transaction() as session:
        row = session.get_one(SignInLink, hash_token(secret))
        kept = {column.name: str(getattr(row, column.name)) for column in SignInLink.__table__.columns}
    assert secret.removeprefix("weft_l_")[:8] not in str(kept), "only its hash is kept"
    assert api.client(secret).get("/api/v1/me").status_code == 401, "it is no token"
    assert secret not in ann.http.get("/api/v1/tokens").text


def test_of_many_that_come_at_the_same_time_one_is_signed_in(api: Api, ann: Person) -> None:
    secret, together = make(ann), Barrier(12)

    def come(_: int) -> int:
        together.wait(300)
        return use(api, secret).status_code

    with ThreadPoolExecutor(12) as threads:
        statuses = sorted(threads.map(come, range(12)))
    assert statuses == [200] + [401] * 11
    with api.context.database.transaction() as session:
        opened = select(func.count()).where(Token.user_id == ann.user_id, Token.kind == "browser")
        assert session.scalar(opened) == 1


def test_a_link_is_good_for_ten_minutes(api: Api, ann: Person) -> None:
    secret = make(ann)
    with api.context.database.transaction() as session:
        lifetime = type_coerce(SignInLink.expires_at - func.now(), Interval)
        left = session.scalar(select(lifetime).where(SignInLink.sha256 == hash_token(secret)))
        assert left is not None
        assert 0 < left.total_seconds() <= 600
        session.execute(update(SignInLink).values(expires_at=func.now() - text("interval '1 second'")))
    assert "has expired: each is valid for 10 minutes; `weft login --browser`" in refused(api, secret)
    for strange in ("weft_l_nobody", ann.token, "x", "ü"):
        assert "is not known here" in refused(api, strange)


def test_a_link_goes_with_its_token(api: Api, ann: Person) -> None:
    made = ann.http.post("/api/v1/tokens", json={"name": "laptop"}).json()
    laptop = Person(api.client(made["token"]), ann.name, ann.user_id, ann.project, ann.project_id, made["token"])
    early, late = make(laptop), make(laptop)
    browser = api.client()
    assert browser.post("/api/v1/session", json={"link": early}).status_code == 200
    assert ann.http.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    assert browser.get("/api/v1/session").status_code == 401, "what it opened ends with the token"
    assert "not in force any more" in refused(api, late)
    with api.context.database.transaction() as session:
        session.execute(delete(Token).where(Token.id == made["id"]))
        assert session.get(SignInLink, hash_token(late)) is None


def test_only_a_token_makes_links_and_only_our_page_uses_them(api: Api, ann: Person) -> None:
    assert api.client().post("/api/v1/session/links").status_code == 401
    browser = api.client()
    browser.post("/api/v1/session", json={"user": ann.name, "password": PASSWORD}).raise_for_status()
    answer = browser.post("/api/v1/session/links", headers=_OURS)
    assert (answer.status_code, code_of(answer)) == (403, "forbidden")
    secret = make(ann)
    elsewhere = use(api, secret, Origin="https://evil.example")
    assert (elsewhere.status_code, code_of(elsewhere)) == (403, "cross_site")
    for body in ({"link": secret, "token": "t0k3n"}, {"link": secret, "user": "u", "password": "p4ssw0rd"}):
        wrong = api.client().post("/api/v1/session", json=body)
        assert (wrong.status_code, code_of(wrong)) == (400, "invalid_request")
        assert secret not in wrong.text
    assert use(api, secret).status_code == 200, "none of these used it up"


def test_the_profile_file_is_named_on_its_own_machine(
    api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nobody = api.client()
    assert nobody.get("/api/v1/signin").json() == {"profile_file": None, "providers": []}
    file = tmp_path / "home" / "client.toml"
    monkeypatch.setattr(api.settings, "api", api.settings.api.model_copy(update={"profile_file": file}))
    assert nobody.get("/api/v1/signin").json() == {"profile_file": str(file), "providers": []}
    # As uvicorn says it of a request that a proxy has passed on.
    monkeypatch.setattr("weft_api.sessions.routes.from_this_machine", lambda request: False)
    assert nobody.get("/api/v1/signin").json() == {"profile_file": None, "providers": []}


@pytest.mark.parametrize(
    ("client", "server", "here"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.8", "192.0.2.7", False),
        ("", "192.0.2.7", False),
    ],
)
def test_this_machine_is_known_by_its_addresses(client: str, server: str, here: bool) -> None:
    scope: dict[str, Any] = {
        "type": "http",
        "client": (client, 1) if client else None,
        "server": (server, 8080),
        "headers": [],
    }
    assert from_this_machine(HTTPConnection(scope)) is here
