"""Metrics of trainings: each record once and in order, series in any width, what lists show and sort by."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.api.conftest import Agent, Api, Attempted, Person

T = 1_769_847_309_000


@pytest.fixture
def gang(api: Api, ann: Person) -> Attempted:
    attempt = api.attempt(ann.submit(set={"learners": "2"})["id"])
    for agent in attempt.agents:
        agent.start()
    return attempt


def record(step: int | None = None, t: int = T, group: str = "", **values: Any) -> dict[str, Any]:
    etimes = {} if step is None else {"iteration": step}
    return {"t": t, "kind": "user", "group": group, "etimes": etimes, "values": values}


def system(t: int = T, **values: Any) -> dict[str, Any]:
    return {"t": t, "kind": "system", "group": "system", "etimes": {}, "values": values}


def send(agent: Agent, sequence: int, *records: dict[str, Any]) -> None:
    answer = agent.post("metrics", sequence=sequence, records=list(records))
    assert answer.status_code == 204, answer.text


def series(person: Person, job: str, query: str = "") -> list[dict[str, Any]]:
    answer = person.http.get(f"/api/v1/jobs/{job}/metrics?{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["series"]
    return found


def chart(person: Person, job: str, query: str = "") -> list[dict[str, Any]]:
    answer = person.http.get(f"/api/v1/jobs/{job}/metrics/query?{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["series"]
    return found


def test_a_repeated_call_counts_once_and_records_are_in_order(ann: Person, gang: Attempted) -> None:
    first, second = gang.agents
    send(first, 0, record(0, loss=1.0), record(1, T + 5, loss=0.5, note="warm"), system(cpu_percent=50))
    send(first, 0, record(0, loss=1.0), record(1, loss=0.5))
    send(second, 0, record(0, group="test", loss=9))
    send(first, 2, record(2, loss=0.25))
    send(first, 1, record(7, loss=7))
    page = ann.http.get(f"/api/v1/jobs/{gang.job_id}/metrics/records").json()
    assert [(one["rindex"], one["learner"], one["group"], one["values"]) for one in page["records"]] == [
        (1, 1, "", {"loss": 1.0}),
        (2, 1, "", {"loss": 0.5, "note": "warm"}),
        (3, 2, "test", {"loss": 9}),
        (4, 1, "", {"loss": 0.25}),
    ]
    assert page["total"] == 4
    assert page["records"][1]["etimes"] == {"iteration": 1}
    found = {(one["name"], one["learner"]): one for one in series(ann, gang.job_id)}
    assert found.keys() == {("loss", 1), ("test/loss", 2), ("system/cpu_percent", 1)}
    loss = found["loss", 1]
    assert loss | {"first_time": 0, "last_time": 0} == {
        **{"name": "loss", "group": "", "kind": "user", "learner": 1, "attempt": 1, "points": 3},
        **{"first_step": 0, "last_step": 2, "first_time": 0, "last_time": 0, "last": 0.25, "min": 0.25, "max": 1.0},
    }
    (shown,) = chart(ann, gang.job_id, "learner=1")
    assert (shown["x"], shown["last"], shown["count"]) == ([0, 1, 2], [1.0, 0.5, 0.25], [1, 1, 1])
    (shown,) = chart(ann, gang.job_id, "kind=system&name=cpu_percent&x=time")
    assert (shown["x"], shown["last"]) == ([T], [50.0])


def test_steps_that_repeat_come_out_of_order_or_are_missing(api: Api, ann: Person, gang: Attempted) -> None:
    agent = gang.agents[0]
    send(agent, 0, record(10, T + 3, loss=3), record(5, T + 1, loss=1), record(7, T + 2, loss=2), record(10, T, loss=4))
    send(agent, 1, *(record(acc=value) for value in (0.1, 0.2)), record(20, acc=0.3), record(acc=0.4))
    shown = {one["name"]: one for one in chart(ann, gang.job_id)}
    assert (shown["loss"]["x"], shown["loss"]["last"], shown["loss"]["count"]) == ([5, 7, 10], [1, 2, 4], [1, 1, 2])
    assert (shown["loss"]["min"][-1], shown["loss"]["max"][-1]) == (3, 4)
    assert shown["acc"]["x"] == [0, 1, 20, 21]
    (by_time,) = chart(ann, gang.job_id, "name=loss&x=time")
    assert (by_time["x"], by_time["last"]) == ([T, T + 1, T + 2, T + 3], [4, 1, 2, 3])
    api.end_attempt(gang)
    again = api.attempt(gang.job_id).agents[0]
    again.start()
    send(again, 0, record(7, loss=0.5))
    assert [(one["attempt"], one["x"]) for one in chart(ann, gang.job_id, "name=loss")] == [(1, [5, 7, 10]), (2, [7])]
    assert [one["attempt"] for one in series(ann, gang.job_id, "attempt=2")] == [2]
    assert agent.post("metrics", sequence=9, records=[record(0, loss=0)]).status_code == 410


def test_what_is_no_number(ann: Person, gang: Attempted) -> None:
    agent = gang.agents[0]
    body = (
        b'{"rank": 0, "instance": "%s", "sequence": 0, "records": [{"t": 1, "values": {"loss": NaN, "big": 1%s, "deep":'
        b' {"a": [1]}, "flag": true, "text": "0.5", "none": null}}, {"t": 2, "values": {"loss": "-inf"}},'
        b'{"t": 3, "etimes": {"iteration": 1e400}, "values": {"loss": 2.5}}, {"t": 4, "values": {"loss": "nan"}}]}'
    ) % (agent.instance.encode(), b"0" * 400)
    headers = {"Content-Type": "application/json"}
    assert agent.http.post("/api/v1/learner/metrics", content=body, headers=headers).status_code == 204
    (loss,) = series(ann, gang.job_id, "name=loss")
    assert (loss["points"], loss["last"], loss["min"], loss["max"]) == (4, None, 2.5, 2.5)
    (shown,) = chart(ann, gang.job_id, "name=loss")
    assert (shown["last"], shown["min"]) == ([None, None, 2.5, None],) * 2
    assert {one["name"] for one in series(ann, gang.job_id)} == {"loss", "flag"}
    first = ann.http.get(f"/api/v1/jobs/{gang.job_id}/metrics/records").json()["records"][0]["values"]
    assert first | {"big": ""} == {"loss": "nan", "big": "", "deep": '{"a": [1]}', "flag": 1, "text": "0.5"}
    (listed,) = ann.http.get("/api/v1/jobs").json()["jobs"]
    assert listed["metrics"]["loss"] == {"last": None, "min": 2.5, "max": 2.5, "step": None}


def test_hostile_names(ann: Person, gang: Attempted) -> None:
    values = {"a\x1b[31m\u202eb\n": 1, "<script>": 2, "": 3, "n" * 1000 + "1": 4, "n" * 1000 + "2": 5, "nul\0": 6}
    agent = gang.agents[0]
    send(agent, 0, record(0, group="g\t", **values), system(**{"Evil name": 1}))
    names = [one["name"] for one in series(ann, gang.job_id)]
    assert len(names) == 6, names
    assert {"g/a\ufffd[31m\ufffdb", "g/<script>", "g/value", "g/nul\ufffd"} < set(names)
    assert all(name.isprintable() and len(name) <= 203 for name in names)
    assert chart(ann, gang.job_id, "name=g/<script>")[0]["last"] == [2]
    assert agent.post("metrics", sequence=1, records=[record(0, loss=1)] * 2001).status_code == 400
    assert agent.post("metrics", sequence=1, records=[record(0, x="y" * 3_000_000)]).status_code == 413


def test_many_points_in_few_buckets(ann: Person, gang: Attempted) -> None:
    """So many that they are folded into blocks, and read from the blocks' summaries where these are exact."""
    agent, count, names = gang.agents[0], 8000, 20
    values = [math.sin(step / 50) * step for step in range(count)]
    values[4321] = 1e6
    values[123] = math.nan
    order = list(range(count))
    order[6000:6010] = reversed(order[6000:6010])  # one block is in no order
    for sequence, start in enumerate(range(0, count, 1000)):
        steps = order[start : start + 1000]
        told = [str(value) if math.isnan(value := values[step]) else value for step in steps]
        sent = [
            record(step, T + place, **{f"m{n}": value for n in range(names)})
            for place, (step, value) in enumerate(zip(steps, told, strict=True), start)
        ]
        send(agent, sequence, *sent)
    job = gang.job_id
    for width in (1, 7, 600, 4000):
        everything = chart(ann, job, f"width={width}")
        assert len(everything) == names
        for one in everything[:2]:
            assert one["points"] == sum(one["count"]) == count
            assert len(one["x"]) <= width
            assert one["x"] == sorted(one["x"])
            _is_exact(one, values)
    (zoomed,) = chart(ann, job, "name=m3&from=5990&to=6100.5")
    assert zoomed["x"] == list(range(5990, 6101))
    assert zoomed["last"] == [values[step] for step in range(5990, 6101)]
    assert chart(ann, job, "name=m3&from=90000")[0]["x"] == []
    (listed,) = series(ann, job, "name=m0")
    assert (listed["points"], listed["max"], listed["last"]) == (count, 1e6, values[-1])
    page = ann.http.get(f"/api/v1/jobs/{job}/metrics/records?from=4999&limit=3").json()
    assert page["total"] == count
    assert [one["rindex"] for one in page["records"]] == [4999, 5000, 5001]
    assert page["records"][0]["values"]["m7"] == values[4998]


def _is_exact(shown: dict[str, Any], values: list[float]) -> None:
    """Each bucket tells of just those points that lie between the x of the one before it and its own."""
    position = 0
    for x, low, high, last, number in zip(*(shown[key] for key in ("x", "min", "max", "last", "count")), strict=True):
        part = values[position : position + number]
        position += number
        assert x == position - 1
        finite = [value for value in part if not math.isnan(value)]
        assert (low, high, last) == (min(finite, default=None), max(finite, default=None), part[-1])
