"""FfDL's logs and metrics, as bytes on the wire: plain, by websocket, in pages."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.api.conftest import Api, Attempted, Person
from tests.api.ffdl.wire import Wire
from tests.api.test_logs import finish
from tests.api.test_metrics import record, send

from weft_api.ffdl import streams
from weft_api.ffdl.frames import MOST, metric_frames, text_frames
from weft_api.ffdl.since_time import parse_since_time
from weft_core.store.models import Job

T = 1_769_847_309_000


@pytest.fixture
def gang(api: Api, ann: Person) -> Attempted:
    attempt = api.attempt(ann.submit(set={"learners": "2"})["id"])
    for agent in attempt.agents:
        agent.start()
    return attempt


def _models(wire: Wire, path: str) -> list[dict[str, Any]]:
    answer = wire.get(path)
    assert answer.status == 200, answer.body
    assert list(answer.json()) == ["models"]
    found: list[dict[str, Any]] = answer.json()["models"]
    return found


# --- logs ------------------------------------------------------------------------------------------------------------


def test_plain_logs(api: Api, wire: Wire, gang: Attempted) -> None:
    path = f"/v1/models/{gang.job_id}/logs?follow=false&since_time="
    assert wire.get(path).body == b""
    first, second = gang.agents
    first.log(0, "epoch 1", "\x1b[31mröt\x1b[0m", t=T)
    second.log(0, "epoch 1, too", t=T + 1)
    # The client sends no Basic here, and can take nothing but octet-streams into its pipe.
    answer = wire.get(path, basic=False)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/octet-stream")
    text = "epoch 1\n\x1b[31mröt\x1b[0m\nepoch 1, too\n"
    assert answer.body.decode() == text
    assert wire.get(f"/v1/models/{gang.job_id}/logs").body.decode() == text, "its parameters have defaults"
    assert wire.get(f"/v1/models/{gang.job_id}/logs?since_time={T + 1}").body == b"epoch 1, too\n"
    finish(api, gang, "FAILED")
    assert wire.get(path.replace("false", "true")).body.decode() == text, "of every learner, also when one has failed"
    assert wire.get(f"/v1/models/{gang.job_id}/logs?since_time=yesterday").status == 400


def test_logs_by_websocket(api: Api, ann: Person, wire: Wire) -> None:
    job_id = ann.submit()["id"]
    with wire.websocket(f"/v1/models/{job_id}/logs") as socket:
        assert socket.status == 101
        assert socket.headers["sec-websocket-protocol"] == "ws"
        # It waits for a job that has not started.
        attempt = api.attempt(job_id)
        (agent,) = attempt.agents
        agent.start()
        frames = iter(socket)
        agent.log(0, "first")
        assert next(frames) == "first\n", "raw lines, not JSON"
        long = "é" * 10_000
        agent.log(1, "short", long, "last")
        finish(api, attempt)
        rest = list(frames)
        assert "".join(rest) == f"short\n{long}\nlast\n"
        assert len(rest) >= 3, "the long line in pieces"
        assert socket.code == 1000
    with wire.websocket(f"/v1/models/{job_id}/logs?follow=false", "wss") as socket:
        assert socket.headers["sec-websocket-protocol"] == "wss"
        assert "".join(socket) == f"first\nshort\n{long}\nlast\n"
        assert socket.code == 1000


def test_who_may_not_gets_no_websocket(
    api: Api, bob: Person, wire: Wire, gang: Attempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("logs", "metrics"):
        with Wire(api.url, bob.token).websocket(f"/v1/models/{gang.job_id}/{path}") as socket:
            assert (socket.status, json.loads(socket.body)["code"]) == (404, 404)
        with Wire(api.url, bob.name, "wrong").websocket(f"/v1/models/{gang.job_id}/{path}") as socket:
            assert (socket.status, json.loads(socket.body)["code"]) == (401, 401)
    for path in ("logs", "metrics"):
        person = api.person(project_id=_project(api, gang))
        with Wire(api.url, person.token).websocket(f"/v1/models/{gang.job_id}/{path}") as socket:
            (token,) = [row for row in person.http.get("/api/v1/tokens").json()["tokens"] if row["user"] == person.name]
            person.http.delete(f"/api/v1/tokens/{token['id']}")
            api.context.wake.changed(gang.job_id)
            list(socket)
            assert socket.code == 1008, "a token that was revoked follows no longer"


def _project(api: Api, gang: Attempted) -> str:
    with api.context.database.transaction() as session:
        return str(session.get_one(Job, gang.job_id).project_id)


def test_loglines(ann: Person, wire: Wire, gang: Attempted) -> None:
    path = f"/v1/logs/{gang.job_id}/loglines?searchType=TERM"
    assert _models(wire, path) == []
    first, second = gang.agents
    for number in range(12):
        agent = (first, second)[number % 2]
        agent.log(number // 2, f"line {number + 1}", t=T + 10 * number)
    found = _models(wire, path)
    assert found[0] == {
        "meta": {"training_id": gang.job_id, "user_id": ann.name, "time": T, "rindex": 1},
        "line": "line 1",
    }
    assert len(found) == 10, "the page's size unless another is asked for"

    def rindexes(query: str) -> list[int]:
        models = _models(wire, f"{path}&{query}")
        assert [model["line"] for model in models] == [f"line {model['meta']['rindex']}" for model in models]
        return [model["meta"]["rindex"] for model in models]

    everything = list(range(1, 13))
    for query, expected in {
        "pagesize=20&pos=0&since_time=": everything,
        "pagesize=5&pos=1": everything[:5],
        "pagesize=5&pos=4": [4, 5, 6, 7, 8],
        "pagesize=5&pos=11": [11, 12],
        "pagesize=5&pos=13": [],
        "pagesize=5&pos=99999999999999999999": [],
        # Pages from the end: FfDL's web page opens with the last, and goes back by the size of a page.
        "pagesize=5&pos=-1": [8, 9, 10, 11, 12],
        "pagesize=5&pos=-6": [3, 4, 5, 6, 7],
        "pagesize=5&pos=-11": [1, 2, 3, 4, 5],
        "pagesize=5&pos=-16": [1, 2, 3, 4, 5],
        "pagesize=3&pos=-3": [10, 11, 12],
        "pagesize=3&pos=-4": [7, 8, 9],
        "pagesize=2&pos=-3": [9, 10],
        "pagesize=20&pos=-1": everything,
        "pagesize=20&pos=-3": everything,
        "pagesize=20&pos=-50": everything,
        "pagesize=20&pos=-99999999999999999999": everything,
        "pagesize=0": everything[:10],
        "pagesize=-4": everything[:10],
        f"pagesize=3&since_time={T + 20}": [3, 4, 5],
        f"pagesize=3&since_time={T + 21}": [4, 5, 6],
        # With a time, pos is an offset from there.
        f"pagesize=3&pos=0&since_time={T + 20}": [3, 4, 5],
        f"pagesize=3&pos=1&since_time={T + 20}": [4, 5, 6],
        f"pagesize=3&pos=9&since_time={T + 20}": [12],
        f"pagesize=3&pos=10&since_time={T + 20}": [],
        f"pagesize=3&pos=-1&since_time={T + 20}": [10, 11, 12],
        f"pagesize=4&pos=-9&since_time={T + 20}": [3, 4, 5, 6],
        f"pagesize=20&pos=-2&since_time={T + 101}": [12],
        f"pagesize=20&pos=5&since_time={T + 111}": [],
        f"pagesize=20&pos=-1&since_time={T + 111}": [],
        # As its flag says: "if negative, the number of lines to count backwards".
        "pagesize=20&pos=0&since_time=-3": [10, 11, 12],
        "pagesize=2&since_time=1": [1, 2],
        "pagesize=2&since_time=876000h": [1, 2],
        "pagesize=20&since_time=1s": [],
        "pagesize=2&since_time=2026-01-31T08:15:09.020Z": [3, 4],
        "pagesize=2&since_time=2026-01-31%2008:15:09.02%20%2B0000%20UTC": [3, 4],
        "pagesize=2&since_time=Sat,%2031%20Jan%202026%2008:15:09%20GMT": [1, 2],
        "pagesize=2&since_time=2026-01-31": [1, 2],
        "pagesize=2&since_time=2026-02-01": [],
    }.items():
        assert rindexes(query) == expected, query
    for query in ("pagesize=x", "pos=x", "since_time=soon", "since_time=2026-13-01"):
        answer = wire.get(f"{path}&{query}")
        assert (answer.status, bool(answer.error())) == (400, True), query


def test_forms_of_since_time() -> None:
    now = datetime.now(UTC).timestamp() * 1000
    for text, span in {"90s": 90, "1h30m": 5400, "1.5h": 5400, "2d": 172_800, "1500ms": 1.5}.items():
        since = parse_since_time(text)
        assert since is not None
        assert abs(since - (now - span * 1000)) < timedelta(seconds=30) / timedelta(milliseconds=1), text
    assert parse_since_time("1769847309123") == 1_769_847_309_123
    assert parse_since_time("  ") is None


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_emetrics(ann: Person, wire: Wire, gang: Attempted) -> None:
    path = f"/v1/logs/{gang.job_id}/emetrics?searchType=TERM"
    assert _models(wire, path) == []
    first_agent, second_agent = gang.agents
    first = record(7, T, "train", loss=0.5, steps=3, note="warm", shape='{"a": [1]}', gone="nan")
    first["etimes"]["wall_time"] = 1.5
    send(first_agent, 0, first, record(8, T + 10, "train", loss=0.4))
    send(second_agent, 0, record(None, T + 20, "", accuracy=1))
    found = _models(wire, path)
    assert found[0] == {
        "meta": {"training_id": gang.job_id, "user_id": ann.name, "time": T, "rindex": 1},
        "grouplabel": "train",
        "etimes": {"iteration": {"type": "INT", "value": "7"}, "wall_time": {"type": "FLOAT", "value": "1.5"}},
        "values": {
            "loss": {"type": "FLOAT", "value": "0.5"},
            "steps": {"type": "INT", "value": "3"},
            "note": {"type": "STRING", "value": "warm"},
            "shape": {"type": "JSONSTRING", "value": '{"a": [1]}'},
            "gone": {"type": "FLOAT", "value": "nan"},
        },
    }
    assert [(model["grouplabel"], model["meta"]["rindex"]) for model in found] == [("train", 1), ("train", 2), ("", 3)]

    for query, expected in {
        "pos=2&pagesize=5": [2, 3],
        "pos=-1&pagesize=5": [1, 2, 3],
        "pos=-1&pagesize=2": [2, 3],
        "pos=-3&pagesize=2": [1, 2],
        "pos=-9&pagesize=2": [1, 2],
        "pos=4": [],
        f"since_time={T + 10}&pos=1": [3],
        f"since_time={T + 10}&pos=-1&pagesize=1": [3],
        f"since_time={T + 10}": [2, 3],
        f"since_time={T + 21}&pos=1": [],
        "since_time=1&pagesize=1": [1],
        "since_time=-2&pagesize=5": [2, 3],
    }.items():
        assert [model["meta"]["rindex"] for model in _models(wire, f"{path}&{query}")] == expected, query
    # Types that came with texts, which these don't look like; TensorBoard's time in FfDL's form.
    typed = record(9, T + 30, "typed", shape='"a text"', count="3", none="null", plain='{"a": 1}', word="nan")
    typed["types"] = {"shape": "JSONSTRING", "count": "JSONSTRING", "none": "JSONSTRING", "plain": "STRING"}
    typed["types"] |= {"word": "STRING", "gone": "STRING"}
    typed["etimes"]["wall_time"] = 12.5  # since its start, say
    event = record(9, T + 40, "", loss=0.5)
    event["etimes"]["wall_time"] = (T + 40) / 1000 + 0.0001
    send(second_agent, 1, typed, event)
    found = _models(wire, f"{path}&pos=4&pagesize=2")
    assert {name: tuple(value.values()) for name, value in found[0]["values"].items()} == {
        **{"shape": ("JSONSTRING", '"a text"'), "count": ("JSONSTRING", "3"), "none": ("JSONSTRING", "null")},
        **{"plain": ("STRING", '{"a": 1}'), "word": ("STRING", "nan")},
    }
    assert set(found[0]["etimes"]) == {"iteration", "wall_time"}
    assert found[1]["etimes"]["timestamp"] == {"type": "STRING", "value": "2026-01-31T08:15:09.040100Z"}
    # A series is found by time also once it has been folded.
    for number in range(1, 40):
        send(first_agent, number, *(record(step, T + 100 * number, "t", v=step) for step in range(50)))
    late = _models(wire, f"{path}&since_time={T + 3900}&pagesize=3")
    assert [model["meta"]["time"] for model in late] == [T + 3900] * 3
    assert len(_models(wire, f"{path}&pagesize=5000")) == 5 + 39 * 50


def test_metric_data(api: Api, wire: Wire, gang: Attempted) -> None:
    agent, _ = gang.agents
    path = f"/v1/models/{gang.job_id}/metrics"
    expected = [
        {
            "type": "t",
            "timestamp": "2026-01-31T08:15:09.000Z",
            "iteration": 7,
            "Values": {"loss": 0.5, "note": "x"},
        },
        {"type": "", "timestamp": "2026-01-31T08:15:09.005Z", "iteration": 0, "Values": {"accuracy": 1}},
        {"type": "", "timestamp": "2026-01-31T08:15:09.006Z", "iteration": 2**31 - 1, "Values": {"big": 1}},
    ]
    with wire.websocket(path) as socket:
        assert socket.headers["sec-websocket-protocol"] == "ws"
        frames = (json.loads(frame) for frame in socket)
        status = next(frames)
        assert (status["type"], status["Values"]) == ("Status", {"Message": "QUEUED: waiting for admission"})
        send(agent, 0, record(7, T, "t", loss=0.5, note="x"))
        send(agent, 1, record(None, T + 5, accuracy=1), record(2**40, T + 6, big=1))
        assert [next(frames) for _ in expected] == expected, "one object a frame"
        finish(api, gang)
        messages = [frame["Values"]["Message"] for frame in frames]
        assert messages[-1] == "COMPLETED: now COMPLETED"
        assert socket.code == 1000
    answer = wire.get(f"{path}?follow=false&since_time=", basic=False)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert [json.loads(line) for line in answer.body.splitlines()] == expected
    assert [json.loads(line) for line in wire.get(f"{path}?since_time={T + 5}").body.splitlines()] == expected[1:]
    followed = [json.loads(line) for line in wire.get(f"{path}?follow=true").body.splitlines()]
    assert followed[:-1] == expected
    model = wire.get(f"/v1/models/{gang.job_id}").json()
    assert {(metric["type"], metric["timestamp"], metric["iteration"]) for metric in model["metrics"]} == {
        ("t", "2026-01-31T08:15:09.000Z", 7),
        ("", "2026-01-31T08:15:09.006Z", 2**31 - 1),
    }


def test_metrics_come_one_by_one(wire: Wire, gang: Attempted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network carries frames that follow at once together, and cuts them anywhere: then the client reads none."""
    monkeypatch.setattr(streams, "_PACE", 0.05)
    send(gang.agents[0], 0, *(record(step, T + step, "t", v=step) for step in range(20)))
    begun = time.monotonic()
    with wire.websocket(f"/v1/models/{gang.job_id}/metrics") as socket:
        found = (frame["iteration"] for frame in map(json.loads, socket) if frame["type"] == "t")
        assert [next(found) for _ in range(20)] == [*range(20)]
        assert time.monotonic() - begun >= 19 * 0.05


# --- frames ----------------------------------------------------------------------------------------------------------


def test_frames_hold_what_the_client_reads_at_once() -> None:
    lines = ["a", "é" * 5000, "", "x" * (MOST - 1), "y" * MOST, "\U0001f600" * 4000]
    found = list(text_frames(lines))
    assert "".join(found) == "".join(f"{line}\n" for line in lines)
    assert max(len(frame.encode()) for frame in found) <= MOST
    assert list(text_frames(["a", "b"])) == ["a\nb\n"]
    written = {f"v{n}": "\x00" * 300 for n in range(99)} | {"long": "\U0001f600" * 4096}
    found = list(metric_frames({"type": "t", "timestamp": "…", "iteration": 1, "Values": written}))
    # The client's buffer has 4096 bytes, and a header of 4 comes before each of these.
    assert {len(frame) + 4 for frame in found} <= {1024, 2048, 4096}
    assert all(frame.lstrip(" ").startswith("{") for frame in found)
    values: dict[str, str] = {}
    for frame in found:
        values |= json.loads(frame)["Values"]
    assert set(values) == set(written)
