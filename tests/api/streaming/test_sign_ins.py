"""Streams end with the sign-in that opened them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from sqlalchemy import func, update
from tests.api.conftest import Api, Person

from weft_api.access.auth import find_principal, still_signed_in
from weft_api.streaming import sign_ins
from weft_core.store.models import Member, Token, User
from weft_core.tokens import hash_token

STREAMS = ["/api/v1/jobs/{}/logs/follow", "/api/v1/jobs/{}/events"]
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
def test_all_streams_end_soon(api: Api, root: Person, ann: Person, change: Change) -> None:
    """A session that the token opened ends, too."""
    job = ann.submit()["id"]
    browser = api.client()
    opened = browser.post("/api/v1/session", json={"token": ann.token}, headers={"X-Weft-Session": "1"})
    assert opened.status_code < 300, opened.text

    def follow(number: int) -> tuple[float, bool]:
        client = browser if number % 3 == 0 else ann.http
        with client.stream("GET", STREAMS[number % 2].format(job), headers={"Accept": "text/event-stream"}) as response:
            assert response.status_code == 200
            lines = list(response.iter_lines())
        return time.monotonic(), "event: end" in lines

    with ThreadPoolExecutor(6) as pool:
        streams = [pool.submit(follow, number) for number in range(6)]
        while _following(ann) < 6:
            time.sleep(0.02)
        change(api, root, ann)
        assert [stream.result()[1] for stream in streams] == [False] * 6, "they end, but not as the job's end"
    assert ann.http.get("/api/v1/me").status_code == 401
    assert browser.get("/api/v1/me").status_code == 401


def test_a_user_can_not_open_streams_without_end(
    api: Api, ann: Person, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_ins, "_MOST", 2)
    job, other = ann.submit()["id"], bob.submit()["id"]
    headers = {"Accept": "text/event-stream"}
    with ExitStack() as opened:
        for path in STREAMS:
            opened.enter_context(ann.http.stream("GET", path.format(job), headers=headers))
        while _following(ann) < 2:
            time.sleep(0.02)
        for path in (*STREAMS, "/v1/models/{}/metrics?version=1&follow=true"):
            refused = ann.http.get(path.format(job), headers=headers)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "5"), refused.text
        with bob.http.stream("GET", STREAMS[0].format(other)) as answer:
            assert answer.status_code == 200
    while _following(ann):
        time.sleep(0.02)
    with ann.http.stream("GET", STREAMS[0].format(job)) as answer:
        assert answer.status_code == 200


def _following(ann: Person) -> int:
    text = ann.http.get("/metrics").text
    rows = [line for line in text.splitlines() if line.startswith("weft_api_followers{")]
    return int(sum(float(row.rpartition(" ")[2]) for row in rows))


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
    by_password = [replace(who, token_id="", token_sha256="") for who in (carols, daves)]
    asked = [anns, bobs, carols, *by_password]
    assert still_signed_in(api.context, asked) == {anns, carols, by_password[0]}
    with api.context.database.transaction() as session:
        assert session.get_one(Token, anns.token_id).last_used_at is not None, "a stream is a use"
