"""Following a log: by WebSocket, slowly, through an outage of Redis, many at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from sqlalchemy import event
from tests.api.conftest import Api, Attempted, Person
from tests.api.test_logs import events, finish, follow
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from weft_api.logs import live
from weft_api.streaming import sign_ins, wakeups


@pytest.fixture
def gang(api: Api, ann: Person) -> Attempted:
    attempt = api.attempt(ann.submit(set={"learners": "2"})["id"])
    for agent in attempt.agents:
        agent.start()
    return attempt


def socket(api: Api, person: Person, job_id: str, query: str = "") -> ClientConnection:
    url = f"{api.url.replace('http', 'ws')}/api/v1/jobs/{job_id}/logs/ws?{query}"
    token = {"Authorization": f"Bearer {person.token}"}
    # Without pings: a follower that reads no lines for a while does not read the answers to pings, either.
    return connect(url, additional_headers=token, proxy=None, compression=None, open_timeout=300, ping_interval=None)


def frames(connection: ClientConnection) -> Iterator[tuple[str, dict[str, Any]]]:
    for message in connection:
        frame = json.loads(message)
        yield frame["event"], frame["data"]


def test_following_by_websocket(api: Api, ann: Person, gang: Attempted) -> None:
    first, second = gang.agents
    first.log(0, "before \u2028 \x85", "\x1b[31mred\x1b[0m")
    with socket(api, ann, gang.job_id) as connection:
        found = frames(connection)
        assert next(found)[0] == "state"
        assert [next(found)[1]["text"] for _ in range(2)] == ["before \u2028 \x85", "\x1b[31mred\x1b[0m"]
        connection.send("what a client says means nothing")
        second.log(0, "live")
        assert next(found)[1] == {"n": 2, "t": 1_769_847_309_000, "attempt": 1, "learner": 2, "text": "live"}
        finish(api, gang)
        assert list(found)[-1] == ("end", {"state": "COMPLETED", "reason": "now COMPLETED"})
    with socket(api, ann, gang.job_id, "from=1&learner=1") as connection:
        assert [data["n"] for name, data in frames(connection) if name == "line"] == [1]


def test_who_may_not_see_a_job_gets_no_websocket(
    api: Api, ann: Person, bob: Person, gang: Attempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        socket(api, bob, gang.job_id)
    assert refused.value.response.status_code == 404
    assert json.loads(refused.value.response.body or b"")["code"] == "not_found"
    bob.token = "weft_u_unknown"
    with pytest.raises(InvalidStatus) as refused:
        socket(api, bob, gang.job_id)
    assert refused.value.response.status_code == 401
    with pytest.raises(InvalidStatus) as refused:
        socket(api, ann, gang.job_id, "from=x")
    assert refused.value.response.status_code == 400
    with socket(api, ann, gang.job_id) as connection:
        found = frames(connection)
        next(found)
        (token,) = ann.http.get("/api/v1/tokens").json()["tokens"]
        ann.http.delete(f"/api/v1/tokens/{token['id']}")
        with pytest.raises(ConnectionClosed) as closed:
            list(found)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


Events = Iterator[tuple[str, str | None, dict[str, Any]]]
"""Name, number (of server-sent events; else the empty string), data."""


@contextlib.contextmanager
def by_events(api: Api, person: Person, job_id: str) -> Iterator[Events]:
    with person.http.stream("GET", f"/api/v1/jobs/{job_id}/logs/follow") as response:
        yield events(response)


@contextlib.contextmanager
def by_websocket(api: Api, person: Person, job_id: str) -> Iterator[Events]:
    with socket(api, person, job_id) as connection:
        yield ((name, "", data) for name, data in frames(connection))


@pytest.mark.parametrize("follows", [by_events, by_websocket])
@pytest.mark.slow
def test_a_slow_follower_is_told_what_it_misses(
    api: Api,
    ann: Person,
    gang: Attempted,
    monkeypatch: pytest.MonkeyPatch,
    follows: Callable[[Api, Person, str], contextlib.AbstractContextManager[Events]],
) -> None:
    monkeypatch.setattr(live, "BEHIND", 300)
    monkeypatch.setattr(live, "NEAR", 50)
    monkeypatch.setattr(live, "_KEPT_BYTES", 1 << 20)
    agent = gang.agents[0]
    agent.log(0, "first")
    quick: list[int] = []
    text = "x" * 5000
    with follows(api, ann, gang.job_id) as found:
        assert next(data for name, _, data in found if name == "line")["n"] == 0
        # Its unread lines fill the buffers on the way, then the server has to wait for it. Nobody else has to.
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(follow, ann, gang.job_id)
            for sequence in range(1, 101):
                agent.log(sequence, *[text] * 100)
            finish(api, gang)
            quick = [data["n"] for name, _, data in other.result(300) if name == "line"]
        rest = list(found)
    seen = [0]
    left_out: list[int] = []
    for name, number, data in rest:
        if name == "line":
            seen.append(data["n"])
        elif name == "gap":
            assert data["lines"] == data["to"] - data["from"] + 1
            assert number in ("", str(data["to"])), "who resumes goes on behind the gap"
            left_out += range(data["from"], data["to"] + 1)
    assert left_out
    assert sorted(seen + left_out) == list(range(10_001)), "each line is sent or named as left out, once"
    assert seen == sorted(seen)
    assert rest[-1][0] == "end"
    assert quick[0] == 0
    first = left_out[0]
    page = ann.http.get(f"/api/v1/jobs/{gang.job_id}/logs?from={first}&limit=3").json()
    assert [line["n"] for line in page["lines"]] == [first, first + 1, first + 2]


def test_who_asks_for_old_lines_gets_them_all(
    api: Api, ann: Person, gang: Attempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "BEHIND", 100)
    for sequence in range(10):
        gang.agents[0].log(sequence, *["old"] * 200)
    threading.Timer(0.3, finish, [api, gang]).start()
    with ThreadPoolExecutor(8) as pool:
        calls = [
            pool.submit(follow, ann, gang.job_id, "learner=1", last_event_id=str(n) if n >= 0 else None)
            for n in (-1, -1, -1, 0, 500, 1998, 1999, 5000)
        ]
        lines = [[data["n"] for name, _, data in call.result(300) if name == "line"] for call in calls]
    assert lines == [list(range(n + 1, 2000)) for n in (-1, -1, -1, 0, 500, 1998, 1999, 1999)]


def test_following_while_redis_loses_everything(
    api: Api, ann: Person, gang: Attempted, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = redis.Redis.from_url(redis_url)
    with ann.http.stream("GET", f"/api/v1/jobs/{gang.job_id}/logs/follow") as response:
        found = events(response)
        next(found)
        for number in range(3):
            with contextlib.suppress(redis.ResponseError):
                client.client_kill_filter(_type="pubsub")
            gang.agents[0].log(number, f"line {number}")
            assert next(found)[2]["n"] == number
    client.close()


def test_followers_share_a_subscription(api: Api, ann: Person, gang: Attempted, redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            connection = stack.enter_context(socket(api, ann, gang.job_id))
            assert connection.recv(60)
        gang.agents[0].log(0, "told")
        assert json.loads(connection.recv(60))["data"]["text"] == "told"
        while not (subscriptions := client.client_list(_type="pubsub")):  # a broken one is made anew after a moment
            time.sleep(0.05)
        assert len(subscriptions) == 1
    client.close()


@pytest.mark.slow
def test_followers_of_a_job_cost_no_query_each(api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    # Polls come with lines only, so that their number does not depend on the time that the test takes.
    monkeypatch.setattr(wakeups, "_THERE", 600.0)
    monkeypatch.setattr(sign_ins, "_INTERVAL", 600.0)
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    def cost(followers: int) -> int:
        """The statements for ten lines, each of which all followers have got before the next is written."""
        attempt = api.attempt(ann.submit()["id"])
        agent = attempt.agents[0]
        agent.start()
        with Crowd(api, ann, attempt.job_id, followers) as crowd:
            crowd.wait_for("event: state")
            event.listen(api.context.database.engine, "before_cursor_execute", note)
            try:
                statements.clear()
                for number in range(10):
                    agent.log(number, f"line {number}.")
                    crowd.wait_for(f"line {number}.")
                return len(statements)
            finally:
                event.remove(api.context.database.engine, "before_cursor_execute", note)

    few, many = cost(10), cost(200)
    assert few > 0
    assert many < few + 100, "190 followers more, ten lines"


def test_followers_of_a_silent_job_are_left_alone(
    api: Api, ann: Person, gang: Attempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "_THERE", 0.01)
    woken: list[str] = []
    waiting = live.LiveLog.news

    async def counted(log: live.LiveLog, *args: Any) -> None:
        woken.append("waits")
        await waiting(log, *args)

    monkeypatch.setattr(live.LiveLog, "news", counted)
    with Crowd(api, ann, gang.job_id, 20) as crowd:
        crowd.wait_for("event: state")
        logs = live.LIVE_LOGS.of(api.context)
        (log,) = logs._logs.values()
        before = log._polled
        deadline = time.monotonic() + 120
        while log._polled < before + 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert log._polled >= before + 20
        assert len(woken) < 20 + 20, "once each, and not with each look at the job"


class Crowd:
    """Followers of a job, all in one thread, each with a connection."""

    def __init__(self, api: Api, person: Person, job_id: str, size: int) -> None:
        self._address = urlsplit(api.url)
        self._request = (
            f"GET /api/v1/jobs/{job_id}/logs/follow HTTP/1.1\r\nHost: {self._address.netloc}\r\n"
            f"Authorization: Bearer {person.token}\r\n\r\n"
        ).encode()
        self._size = size
        self._runner = asyncio.Runner()
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def __enter__(self) -> Crowd:
        self._runner.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        for _reader, writer in self._streams:
            writer.close()
        self._runner.close()

    def wait_for(self, text: str) -> None:
        """Until each of them has got it."""

        async def wait() -> None:
            async with asyncio.timeout(300):
                await asyncio.gather(*(reader.readuntil(text.encode()) for reader, _ in self._streams))

        self._runner.run(wait())

    async def _open(self) -> None:
        for _ in range(self._size):
            reader, writer = await asyncio.open_connection(self._address.hostname, self._address.port)
            writer.write(self._request)
            self._streams.append((reader, writer))
