"""Signing in a program by a code that its user confirms (RFC 8628)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import httpx
import pytest
from sqlalchemy import delete, func, select, text, update
from tests.api.conftest import PASSWORD, Api, Person, code_of

from weft_api.tokens import device
from weft_core.store.models import AuditRecord, DeviceLogin, Member, Token

_OURS = {"X-Weft-Session": "1"}


@pytest.fixture(autouse=True)
def _none_waits(api: Api) -> None:
    with api.context.database.transaction() as session:
        session.execute(delete(DeviceLogin))


def begin(api: Api, **body: Any) -> dict[str, Any]:
    answer = api.client().post("/api/v1/device", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def poll(api: Api, begun: dict[str, Any]) -> httpx.Response:
    """Ask for the token, as if the last question was long ago."""
    with api.context.database.transaction() as session:
        session.execute(update(DeviceLogin).values(polled_at=None))
    return api.client().post("/api/v1/device:token", json={"device_code": begun["device_code"]})


def browser(api: Api, person: Person, **body: Any) -> httpx.Client:
    """A browser in which the person is signed in, by the password unless ``body`` says otherwise."""
    client = api.client()
    sent = body or {"user": person.name, "password": PASSWORD, "project": person.project}
    assert client.post("/api/v1/session", json=sent).status_code == 200
    client.headers.update(_OURS)
    return client


def confirm(client: httpx.Client, code: str, **body: Any) -> httpx.Response:
    return client.post(f"/api/v1/device/{code}/confirm", json=body)


def test_a_confirmed_code_gives_a_token_once(api: Api, ann: Person) -> None:
    begun = begin(api, client="weft on laptop")
    assert begun["path_complete"] == f"{begun['path']}?code={begun['user_code']}"
    assert code_of(poll(api, begun)) == "authorization_pending"
    page = browser(api, ann)
    shown = page.get(f"/api/v1/device/{begun['user_code']}").json()
    assert (shown["client"], shown["address"], shown["project"]) == ("weft on laptop", "127.0.0.1", None)
    assert confirm(page, begun["user_code"]).status_code == 204
    answer = poll(api, begun)
    assert answer.status_code == 200, answer.text
    token = answer.json()
    assert (token["user"], token["project"], token["name"]) == (ann.name, ann.project, "login")
    assert token["expires_at"]
    assert api.client(token["token"]).get("/api/v1/me").json()["role"] == "owner"
    assert code_of(poll(api, begun)) == "expired_token", "a code is good for one token"
    assert page.get(f"/api/v1/device/{begun['user_code']}").status_code == 404


def test_the_codes_are_kept_as_hashes_and_recorded(api: Api, ann: Person) -> None:
    begun = begin(api)
    confirm(browser(api, ann), begun["user_code"])
    with api.context.database.transaction() as session:
        row = session.scalars(select(DeviceLogin)).one()
        assert begun["device_code"] not in {str(value) for value in vars(row).values()}
    poll(api, begun)
    with api.context.database.transaction() as session:
        actions = session.execute(
            select(AuditRecord.action, AuditRecord.actor).where(
                AuditRecord.user_id == ann.user_id, AuditRecord.action.startswith("tokens.")
            )
        ).all()
    assert sorted(map(tuple, actions)) == [("tokens.confirm_login", "session"), ("tokens.login", "session")]


@pytest.mark.parametrize("spelt", [str.lower, lambda code: code.replace("-", ""), lambda code: f" {code} "])
def test_a_code_may_be_typed_in_several_ways(api: Api, ann: Person, spelt: Any) -> None:
    begun = begin(api)
    assert confirm(browser(api, ann), spelt(begun["user_code"])).status_code == 204


def test_a_hasty_program_is_told_to_slow_down(api: Api) -> None:
    begun = begin(api)
    with api.context.database.transaction() as session:
        session.execute(update(DeviceLogin).values(polled_at=func.now() + text("interval '1 hour'")))
    answer = api.client().post("/api/v1/device:token", json={"device_code": begun["device_code"]})
    assert code_of(answer) == "slow_down"


def test_a_refused_code_gives_nothing(api: Api, ann: Person) -> None:
    begun = begin(api)
    page = browser(api, ann)
    assert page.post(f"/api/v1/device/{begun['user_code']}/deny").status_code == 204
    assert code_of(poll(api, begun)) == "access_denied"
    assert confirm(page, begun["user_code"]).status_code == 409


def test_a_code_ends_after_ten_minutes(api: Api, ann: Person) -> None:
    begun = begin(api)
    with api.context.database.transaction() as session:
        session.execute(update(DeviceLogin).values(expires_at=func.now()))
    assert code_of(poll(api, begun)) == "expired_token"
    assert confirm(browser(api, ann), begun["user_code"]).status_code == 404


def test_codes_that_nobody_gave_are_not_known(api: Api, ann: Person) -> None:
    begun = begin(api)
    for wrong in (begun["user_code"], "weft_d_" + "x" * 43, "", "ä", "\0"):
        answer = api.client().post("/api/v1/device:token", json={"device_code": wrong})
        assert code_of(answer) == "expired_token"
    page = browser(api, ann)
    for wrong in ("AAAA-AAAA", "x", "%00", "b" * 200, begun["device_code"]):
        assert page.get(f"/api/v1/device/{wrong}").status_code == 404


def test_the_page_of_another_site_confirms_nothing(api: Api, ann: Person) -> None:
    begun = begin(api)
    page = browser(api, ann)
    del page.headers["X-Weft-Session"]
    assert code_of(confirm(page, begun["user_code"])) == "cross_site"
    assert api.client().post(f"/api/v1/device/{begun['user_code']}/confirm", json={}).status_code == 401


def test_the_project_is_one_of_the_users(api: Api, ann: Person, bob: Person) -> None:
    with api.context.database.transaction() as session:
        session.add(Member(project_id=bob.project_id, user_id=ann.user_id, role="viewer"))
    begun = begin(api, project=bob.project)
    page = browser(api, ann)
    assert confirm(page, begun["user_code"], project="nowhere").status_code == 404
    assert confirm(page, begun["user_code"]).status_code == 204
    made = poll(api, begun).json()
    assert made["project"] == bob.project
    assert api.client(made["token"]).get("/api/v1/me").json()["role"] == "viewer"


def test_what_a_token_confirms_stays_in_its_project_and_ends_with_it(api: Api, ann: Person, bob: Person) -> None:
    with api.context.database.transaction() as session:
        session.add(Member(project_id=bob.project_id, user_id=ann.user_id, role="owner"))
    page = browser(api, ann, token=ann.token)
    elsewhere = begin(api, project=bob.project)
    assert confirm(page, elsewhere["user_code"]).status_code == 403
    begun = begin(api)
    assert confirm(page, begun["user_code"]).status_code == 204
    made = api.client(poll(api, begun).json()["token"])
    assert made.get("/api/v1/me").status_code == 200
    token_id = next(entry["id"] for entry in ann.http.get("/api/v1/tokens").json()["tokens"] if entry["name"] == "test")
    ann.http.delete(f"/api/v1/tokens/{token_id}")
    assert made.get("/api/v1/me").status_code == 401


@pytest.mark.parametrize("end", ["sign_out", "leave"])
def test_who_is_gone_by_now_signs_no_program_in(api: Api, ann: Person, end: str) -> None:
    begun = begin(api)
    page = browser(api, ann)
    assert confirm(page, begun["user_code"]).status_code == 204
    if end == "sign_out":
        page.delete("/api/v1/session")
    else:
        with api.context.database.transaction() as session:
            session.execute(delete(Member).where(Member.user_id == ann.user_id))
    assert code_of(poll(api, begun)) == "access_denied"


def test_of_two_questions_at_once_one_gets_the_token(api: Api, ann: Person) -> None:
    begun = begin(api)
    confirm(browser(api, ann), begun["user_code"])
    together = Barrier(4)

    def ask() -> int:
        client = api.client()
        together.wait()
        return client.post("/api/v1/device:token", json={"device_code": begun["device_code"]}).status_code

    with ThreadPoolExecutor(4) as pool:
        statuses = [entry.result() for entry in [pool.submit(ask) for _ in range(4)]]
    assert sorted(statuses) == [200, 400, 400, 400]
    with api.context.database.transaction() as session:
        made = session.scalars(select(Token).where(Token.user_id == ann.user_id, Token.name == "login")).all()
    assert len(made) == 1


def test_one_address_may_not_fill_the_table(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_MOST_PER_ADDRESS", 3)
    for _ in range(3):
        begin(api)
    refused = api.client().post("/api/v1/device", json={})
    assert (refused.status_code, code_of(refused)) == (429, "too_many_sign_ins")
    with api.context.database.transaction() as session:
        session.execute(update(DeviceLogin).values(expires_at=func.now()))
    begin(api)
    with api.context.database.transaction() as session:
        assert session.scalar(select(func.count()).select_from(DeviceLogin)) == 1, "expired ones are forgotten"
