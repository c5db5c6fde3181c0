"""Streams end with the sign-in that opened them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import httpx
import pytest
from sqlalchemy import func, update
from tests.api.conftest import Api, Person
from tests.api.ffdl.wire import Wire

from weft_api.access.auth import Principal, find_principal, still_signed_in
from weft_api.context import Context
from weft_api.streaming import sign_ins
from weft_core.store.models import Member, Token, User
from weft_core.tokens import hash_token

STREAMS = ["/api/v1/jobs/{}/logs/follow", "/api/v1/jobs/{}/events"]
FFDL = ["/v1/models/{}/logs?version=2017-02-13&follow=true", "/v1/models/{}/metrics?version=2017-02-13&follow=true"]
Change = Callable[[Api, Person, Person], None]


def _revoked(api: Api, root: Person, ann: Person) -> None:
    tokens = ann.http.get("/api/v1/tokens").json()["tokens"]
    (token,) = [token for token in tokens if ann.token.startswith(token["prefix"])]
    assert ann.http.delete(f"/api/v1/tokens/{token['id']}").status_code == 204


def _disabled(api: Api, root: Person, ann: Person) -> None:
    assert root.http.patch(f"/api/v1/users/{ann.name}", json={"disabled": True}).status_code == 200


def _removed(api: Api, root: Person, ann: Person) -> None:
    other = api.person("owner", ann.project_id)
    assert other.http.delete(f"/api/v1/projects/{ann.project}/members/{ann.name}").status_code == 204


def _new_password(api: Api, root: Person, ann: Person) -> None:
    change = {"password": "another long password", "end_tokens": True}
    assert root.http.patch(f"/api/v1/users/{ann.name}", json=change).status_code == 200


@pytest.fixture
def root(api: Api) -> Person:
    person = api.person()
    with api.context.database.transaction() as session:
        session.execute(update(User).where(User.id == person.user_id).values(is_admin=True))
    return person


@pytest.mark.parametrize("change", [_revoked, _disabled, _removed, _new_password])
def test_all_streams_end_soon(
    api: Api, root: Person, ann: Person, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first query after the change. A session that the token opened ends, too."""
    assert sign_ins._INTERVAL < 4
    asked = []

    def ask(context: Context, people: Collection[Principal]) -> set[Principal]:
        asked.append(len(people))
        return still_signed_in(context, people)

    monkeypatch.setattr(sign_ins, "still_signed_in", ask)
    job = ann.submit()["id"]
    browser = api.client()
    opened = browser.post("/api/v1/session", json={"token": ann.token}, headers={"X-Weft-Session": "1"})
    assert opened.status_code < 300, opened.text

    def follow(client: httpx.Client, path: str) -> bool:
        with client.stream("GET", path.format(job), headers={"Accept": "text/event-stream"}) as response:
            assert response.status_code == 200
            return "event: end" in response.iter_lines()

    with ThreadPoolExecutor(6) as pool, Wire(api.url, ann.token).websocket(f"/v1/models/{job}/logs") as socket:
        wanted = [(ann.http, path) for path in (*STREAMS, *FFDL)] + [(browser, path) for path in STREAMS]
        streams = [pool.submit(follow, client, path) for client, path in wanted]
        while _following(api) < 7:
            time.sleep(0.02)
        change(api, root, ann)
        asked.clear()
        assert [stream.result() for stream in streams] == [False] * 6, "they end, but not as the job's end"
        assert list(socket) == []
        # A query may have been on its way before the change.
        assert len(asked) <= 2
    assert ann.http.get("/api/v1/me").status_code == 401
    assert browser.get("/api/v1/me").status_code == 401


def test_a_stream_by_password_ends_with_the_password(api: Api, root: Person, ann: Person) -> None:
    job = ann.submit()["id"]
    for password in ("the first long password", "the second long password"):
        assert root.http.patch(f"/api/v1/users/{ann.name}", json={"password": password}).status_code == 200
        if password.startswith("the second"):
            break
        client = api.client()
        client.auth = (ann.name, password)
        opened = ExitStack()
        stream = opened.enter_context(client.stream("GET", FFDL[0].format(job)))
        assert stream.status_code == 200, stream.read()
        while _following(api) < 1:
            time.sleep(0.02)
    with opened:
        list(stream.iter_raw())
    assert client.get("/v1/models", params={"version": "1"}).status_code == 401


@pytest.mark.parametrize("of", ["token", "user", "address"])
def test_nobody_opens_streams_without_end(
    api: Api, ann: Person, bob: Person, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    monkeypatch.setitem(sign_ins._MOST, of, 2)
    job, other = ann.submit()["id"], bob.submit()["id"]
    headers = {"Accept": "text/event-stream"}
    with ExitStack() as opened:
        for path in STREAMS:
            opened.enter_context(ann.http.stream("GET", path.format(job), headers=headers))
        while _following(api) < 2:
            time.sleep(0.02)
        for path in (*STREAMS, "/v1/models/{}/metrics?version=1&follow=true"):
            refused = ann.http.get(path.format(job), headers=headers)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "5"), refused.text
            assert f"this {of} has 2 streams open" in refused.text
        with bob.http.stream("GET", STREAMS[0].format(other)) as answer:
            assert answer.status_code == (429 if of == "address" else 200)
    while _following(api):
        time.sleep(0.02)
    with ann.http.stream("GET", STREAMS[0].format(job)) as answer:
        assert answer.status_code == 200


def _following(api: Api) -> int:
    """Streams that are being watched."""
    return sum(map(len, list(sign_ins.SIGN_INS.of(api.context)._watched.values())))


def test_streams_that_are_admitted_together(api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sign_ins._MOST, "user", 3)
    monkeypatch.setattr(sign_ins.SignIns, "admit", lambda *_: None)
    job, headers = ann.submit()["id"], {"Accept": "text/event-stream"}
    with ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(ann.http.stream("GET", STREAMS[1].format(job), headers=headers))
        while _following(api) < 3:
            time.sleep(0.02)
        assert "event: end" not in ann.http.get(STREAMS[1].format(job), headers=headers).text


def test_one_question_about_many(api: Api, ann: Person, bob: Person) -> None:
    carol, dave = api.person(), api.person()
    people = [find_principal(api.context, hash_token(person.token)) for person in (ann, bob, carol)]
    anns, bobs, carols = (who for who in people if who is not None)
    daves = find_principal(api.context, hash_token(dave.token))
    assert daves is not None
    with api.context.database.transaction() as session:
        session.execute(update(Token).where(Token.id == bobs.token_id).values(expires_at=func.now()))
        session.execute(update(Token).where(Token.id == anns.token_id).values(last_used_at=None))
        session.delete(session.get_one(Member, (daves.project_id, daves.user_id)))
        session.execute(update(User).where(User.id == carols.user_id).values(password_hash="hash"))
    by_password = [
        replace(who, token_id="", token_sha256="", password_mark=hash_token("hash")) for who in (carols, daves)
    ]
    before = replace(by_password[0], password_mark=hash_token("hash of the password before"))
    asked = [anns, bobs, carols, before, *by_password]
    assert still_signed_in(api.context, asked) == {anns, carols, by_password[0]}
    with api.context.database.transaction() as session:
        assert session.get_one(Token, anns.token_id).last_used_at is not None, "a stream is a use"
