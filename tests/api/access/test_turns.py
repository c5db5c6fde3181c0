"""Turns: a caller's many requests wait for each other, and other callers' requests do not wait for them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import select
from tests.api.conftest import Api

from weft_api.access import turns
from weft_api.access.turns import Turns
from weft_core.store.models import Token


async def _settled(task: asyncio.Task[object]) -> bool:
    """Whether the task is done, after everything that can continue has continued."""
    for _ in range(10):
        await asyncio.sleep(0)
    return task.done()


def test_a_caller_beside_others_has_three_requests_in_progress() -> None:
    async def check() -> None:
        mine = Turns()
        for caller in ("ann", "bob"):
            mine.know(caller, f"tok-{caller}")
        (await mine.take("bob")).end()
        taken = [await mine.take("ann") for _ in range(3)]
        fourth, fifth = (asyncio.create_task(mine.take("ann")) for _ in range(2))
        assert not await _settled(fourth)
        (await mine.take("bob")).end()  # does not wait
        taken[0].end()
        taken[0].end()  # once
        assert await _settled(fourth)
        assert not await _settled(fifth)
        fifth.cancel()
        taken[1].end()
        (await mine.take("ann")).end()

    asyncio.run(check())


def test_a_caller_alone_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        mine = Turns()
        mine.know("ann", "tok-ann")
        (await mine.take("ann")).end()
        monkeypatch.setattr(turns, "_QUIET", -1.0)  # nobody else has called for so long
        taken = [await mine.take("ann") for _ in range(16)]
        waiting = asyncio.create_task(mine.take("ann"))
        assert not await _settled(waiting)
        taken[0].end()
        assert await _settled(waiting)

    asyncio.run(check())


def test_made_up_credentials_share_the_turns_of_one_caller() -> None:
    async def check() -> None:
        mine = Turns()
        mine.know("ann", "tok-ann")
        for number in range(3):
            await mine.take(f"made up {number}")
        assert not await _settled(asyncio.create_task(mine.take("made up too")))
        await mine.take("ann")
        mine.forget("ann")  # revoked
        assert not await _settled(asyncio.create_task(mine.take("ann")))

    asyncio.run(check())


def test_a_request_that_waits_for_something_else_gives_its_turn_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        mine = Turns()
        monkeypatch.setattr(turns, "_LONGEST", 0.01)
        for _ in range(10):
            await mine.take("ann")

    asyncio.run(check())


def test_a_token_whose_requests_hang_leaves_threads_and_connections_to_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = api.person(), api.person()
    monkeypatch.setattr(turns, "_LONGEST", 600.0)
    assert bob.http.get("/api/v1/me").status_code == 200
    with ThreadPoolExecutor(60) as pool:
        with api.context.database.transaction() as session:
            # The first use of a token is noted in its row.
            session.scalars(select(Token).where(Token.user_id == ann.user_id).with_for_update()).one()
            many = [pool.submit(_get, api, ann.token) for _ in range(60)]
            for _ in range(20):
                assert bob.http.get("/api/v1/me", timeout=300).status_code == 200
            assert not any(answer.done() for answer in many)
        assert {answer.result().status_code for answer in many} == {200}


def _get(api: Api, token: str) -> httpx.Response:
    return httpx.get(f"{api.url}/api/v1/me", headers={"Authorization": f"Bearer {token}"}, timeout=120)


def test_streams_have_no_turn(api: Api) -> None:
    ann = api.person()
    job = ann.submit()["id"]
    streams = [ann.http.stream("GET", f"/api/v1/jobs/{job}/logs/follow", timeout=300) for _ in range(20)]
    opened = [stream.__enter__() for stream in streams]
    assert {stream.status_code for stream in opened} == {200}
    assert ann.http.get("/api/v1/me").status_code == 200
    for stream in opened:
        stream.close()
