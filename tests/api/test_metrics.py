"""Metrics of trainings: each record once and in order, series in any width, and the values of lists."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any

import httpx
import pytest
from arro3.core import DataType
from arro3.io import read_parquet
from sqlalchemy import delete, func, select
from tests.api.conftest import Agent, Api, Attempted, Person, code_of, sizes_of_groups, until
from tests.servers import Servers

from weft_api.metrics import ingest
from weft_core.settings import LimitSettings, Settings
from weft_core.store.models import Job, JobMetric, MetricBatch, MetricCursor, MetricRecords, MetricSeries

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


def equal(name: str, count: int, value: object) -> dict[str, Any]:
    """So many values, by their numbered names."""
    return {f"{name}{n}": value for n in range(count)}


def system(t: int = T, **values: Any) -> dict[str, Any]:
    return {"t": t, "kind": "system", "group": "system", "etimes": {}, "values": values}


def send(agent: Agent, sequence: int, *records: dict[str, Any]) -> None:
    answer = agent.post("metrics", sequence=sequence, records=list(records))
    assert answer.status_code == 204, answer.text


def until_folded(api: Api, attempt: Attempted) -> None:
    """So many values have come that a fold is due; wait for it."""
    waiting = select(MetricCursor.waiting).where(MetricCursor.job_id == attempt.job_id)

    def folded() -> bool:
        with api.context.database.transaction() as session:
            return (session.scalar(waiting) or 0) < 2048

    until(folded)


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
    assert [(row["rindex"], row["learner"], row["group"], row["values"]) for row in page["records"]] == [
        (1, 1, "", {"loss": 1.0}),
        (2, 1, "", {"loss": 0.5, "note": "warm"}),
        (3, 2, "test", {"loss": 9}),
        (4, 1, "", {"loss": 0.25}),
    ]
    assert page["total"] == 4
    assert page["records"][1]["etimes"] == {"iteration": 1}
    found = {(metric["name"], metric["learner"]): metric for metric in series(ann, gang.job_id)}
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


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_while_learners_repeat_and_charts_are_read(ann: Person, gang: Attempted) -> None:
    """While batches are folded, too: each reader sees a number of points that never falls."""
    calls, records, values = 12, 100, 6

    def report(agent: Agent) -> None:
        for sequence in range(calls):
            made = [record(sequence * records + n, **equal("v", values, n)) for n in range(records)]
            for _ in range(3):
                send(agent, sequence, *made)

    def watch(_: Agent) -> list[int]:
        seen: list[int] = []
        while not seen or seen[-1] < 2 * calls * records * values:
            seen.append(sum(sum(metric["count"]) for metric in chart(ann, gang.job_id, "width=5")))
        return seen

    with ThreadPoolExecutor(4) as pool:
        reports = [pool.submit(report, agent) for agent in gang.agents]
        watches = [pool.submit(watch, agent) for agent in gang.agents]
        for call in reports:
            call.result(300)
        for watched in watches:
            assert watched.result(300) == sorted(watched.result())
    assert {metric["points"] for metric in series(ann, gang.job_id)} == {calls * records}
    numbers: list[int] = []
    while len(numbers) < 2 * calls * records:
        page = ann.http.get(f"/api/v1/jobs/{gang.job_id}/metrics/records?from={len(numbers) + 1}&limit=2000").json()
        numbers += [row["rindex"] for row in page["records"]]
    assert numbers == list(range(1, 2 * calls * records + 1))


def test_calls_that_wait_are_taken_in_together_and_each_hears_of_its_own(
    api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = sizes_of_groups(monkeypatch, ingest)
    attempt = api.attempt(ann.submit(set={"learners": "12"})["id"])
    for agent in attempt.agents:
        agent.start()
    good = attempt.agents[:10]
    send(good[9], 0, record(0, loss=9))  # so that there is a row to wait for
    calls: list[Callable[[], httpx.Response]] = [
        *(
            partial(caller.post, "metrics", sequence=1, records=[record(1, loss=caller.rank)])
            for caller in [*good, *good]
        ),
        partial(Agent(good[0].http, 10).post, "metrics", sequence=0, records=[record(1, loss=99)]),
        partial(Agent(good[0].http, 12).post, "metrics", sequence=0, records=[record(1, loss=99)]),
        partial(good[0].post, "metrics", sequence=2, records=[{"t": -1}]),
    ]
    with ThreadPoolExecutor(len(calls)) as pool:
        with api.context.database.transaction() as session:
            session.execute(select(MetricCursor).where(MetricCursor.job_id == attempt.job_id).with_for_update())
            answers = [pool.submit(call) for call in calls]
            while ingest.QUEUE.of(api.context).waiting + sum(groups) < len(calls) + 1:
                time.sleep(0.01)
        statuses = [answer.result().status_code for answer in answers]
    assert statuses == [204] * 20 + [410, 400, 400]
    assert len(groups) <= 5
    assert sum(groups) == len(calls) + 1
    found = {metric["learner"]: (metric["points"], metric["last"]) for metric in series(ann, attempt.job_id)}
    assert found == {**{learner: (1, learner - 1) for learner in range(1, 10)}, 10: (2, 9)}
    shown = ann.http.get(f"/api/v1/jobs/{attempt.job_id}").json()["metrics"]
    assert shown == {"loss": {"last": 0, "min": 0, "max": 0, "step": 1, "time": T}}


def test_steps_that_repeat_come_out_of_order_or_are_missing(api: Api, ann: Person, gang: Attempted) -> None:
    agent = gang.agents[0]
    send(agent, 0, record(10, T + 3, loss=3), record(5, T + 1, loss=1), record(7, T + 2, loss=2), record(10, T, loss=4))
    send(agent, 1, *(record(acc=value) for value in (0.1, 0.2)), record(20, acc=0.3), record(acc=0.4))
    shown = {metric["name"]: metric for metric in chart(ann, gang.job_id)}
    assert (shown["loss"]["x"], shown["loss"]["last"], shown["loss"]["count"]) == ([5, 7, 10], [1, 2, 4], [1, 1, 2])
    assert (shown["loss"]["min"][-1], shown["loss"]["max"][-1]) == (3, 4)
    assert shown["acc"]["x"] == [0, 1, 20, 21]
    (by_time,) = chart(ann, gang.job_id, "name=loss&x=time")
    assert (by_time["x"], by_time["last"]) == ([T, T + 1, T + 2, T + 3], [4, 1, 2, 3])
    api.end_attempt(gang)
    again = api.attempt(gang.job_id).agents[0]
    again.start()
    send(again, 0, record(7, loss=0.5))
    assert [(metric["attempt"], metric["x"]) for metric in chart(ann, gang.job_id, "name=loss")] == [
        (1, [5, 7, 10]),
        (2, [7]),
    ]
    assert [metric["attempt"] for metric in series(ann, gang.job_id, "attempt=2")] == [2]
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
    assert {metric["name"] for metric in series(ann, gang.job_id)} == {"loss", "flag"}
    first = ann.http.get(f"/api/v1/jobs/{gang.job_id}/metrics/records").json()["records"][0]["values"]
    assert first | {"big": ""} == {"loss": "nan", "big": "", "deep": '{"a": [1]}', "flag": 1, "text": "0.5"}
    (listed,) = ann.http.get("/api/v1/jobs").json()["jobs"]
    assert listed["metrics"]["loss"] == {"last": None, "min": 2.5, "max": 2.5, "step": None, "time": 4}


def test_hostile_names(ann: Person, gang: Attempted) -> None:
    values = {"a\x1b[31m\u202eb\n": 1, "<script>": 2, "": 3, "n" * 1000 + "1": 4, "n" * 1000 + "2": 5, "nul\0": 6}
    agent = gang.agents[0]
    send(agent, 0, record(0, group="g\t", **values), system(**{"Evil name": 1}))
    names = [metric["name"] for metric in series(ann, gang.job_id)]
    assert len(names) == 6, names
    assert {"g/a\ufffd[31m\ufffdb", "g/<script>", "g/value", "g/nul\ufffd"} < set(names)
    assert all(name.isprintable() and len(name) <= 203 for name in names)
    assert chart(ann, gang.job_id, "name=g/<script>")[0]["last"] == [2]
    assert agent.post("metrics", sequence=1, records=[record(0, loss=1)] * 2001).status_code == 400
    assert agent.post("metrics", sequence=1, records=[record(0, x="y" * 3_000_000)]).status_code == 413


@pytest.mark.slow
def test_a_call_with_too_many_names_is_refused_before_anything_is_stored(
    api: Api, ann: Person, gang: Attempted
) -> None:
    agent = gang.agents[0]
    many = [record(0, **equal(f"r{part}n", 1000, 1)) for part in range(21)]
    refused = agent.post("metrics", sequence=0, records=many)
    assert (refused.status_code, code_of(refused)) == (413, "too_large")
    assert "21,000 values; a call may have 20,000" in refused.json()["detail"]
    with api.context.database.transaction() as session:
        assert session.scalar(select(func.count()).where(MetricBatch.job_id == gang.job_id)) == 0
    send(agent, 0, *many[:20])  # under the same number: the first one was not taken in
    assert ann.http.get(f"/api/v1/jobs/{gang.job_id}/metrics/records").json()["total"] == 20


def test_many_points_in_few_buckets(api: Api, ann: Person, gang: Attempted) -> None:
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
            record(step, T + place, **equal("m", names, value))
            for place, (step, value) in enumerate(zip(steps, told, strict=True), start)
        ]
        send(agent, sequence, *sent)
    job = gang.job_id
    until_folded(api, gang)
    for width in (1, 7, 600, 4000):
        everything = chart(ann, job, f"width={width}")
        assert len(everything) == names
        for metric in everything[:2]:
            assert metric["points"] == sum(metric["count"]) == count
            assert len(metric["x"]) <= width
            assert metric["x"] == sorted(metric["x"])
            _is_exact(metric, values)
    (zoomed,) = chart(ann, job, "name=m3&from=5990&to=6100.5")
    assert zoomed["x"] == list(range(5990, 6101))
    assert zoomed["last"] == [values[step] for step in range(5990, 6101)]
    assert chart(ann, job, "name=m3&from=90000")[0]["x"] == []
    (listed,) = series(ann, job, "name=m0")
    assert (listed["points"], listed["max"], listed["last"]) == (count, 1e6, values[-1])
    wanted = [(f"m{n}", step, T + place, values[step]) for n in (0, 7) for place, step in enumerate(order)]
    answer = ann.http.get(f"/api/v1/jobs/{job}/metrics/export?name=m0&name=m7")
    assert answer.headers["content-disposition"] == f'attachment; filename="{job}-metrics.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    times = [int(datetime.fromisoformat(row["time"]).timestamp() * 1000) for row in rows]
    exported = [(row["name"], int(row["step"]), at, float(row["value"])) for row, at in zip(rows, times, strict=True)]
    assert repr(exported) == repr(wanted), "repr: NaN is not equal to itself"
    parquet = ann.http.get(f"/api/v1/jobs/{job}/metrics/export?format=parquet&name=m0&name=m7").content
    read = columns_of(parquet)
    assert repr(list(zip(*(read[key] for key in ("name", "step", "time", "value")), strict=True))) == repr(wanted)
    page = ann.http.get(f"/api/v1/jobs/{job}/metrics/records?from=4999&limit=3").json()
    assert page["total"] == count
    assert [row["rindex"] for row in page["records"]] == [4999, 5000, 5001]
    assert page["records"][0]["values"]["m7"] == values[4998]
    for start, at, expected in ((1, T + 4321, 4322), (5000, T + 4321, 5000), (1, T + 7999, 8000), (1, T + 8000, None)):
        path = f"/api/v1/jobs/{job}/metrics/records?from={start}&since={at}&limit=1"
        assert [row["rindex"] for row in ann.http.get(path).json()["records"]] == ([expected] if expected else [])


def columns_of(parquet: bytes) -> dict[str, list[Any]]:
    """Columns of a Parquet file; times in ms since the epoch."""
    table = read_parquet(io.BytesIO(parquet)).read_all()
    assert str(table.schema.field("time").type) == 'arro3.core.DataType<Timestamp(ms, "UTC")>\n'
    return {
        name: list((table[name].cast(DataType.int64()) if name == "time" else table[name]).to_pylist())
        for name in table.column_names
    }


def _is_exact(shown: dict[str, Any], values: list[float]) -> None:
    """Each bucket covers exactly the points between the x of the bucket before it and its own."""
    position = 0
    for x, low, high, last, number in zip(*(shown[key] for key in ("x", "min", "max", "last", "count")), strict=True):
        part = values[position : position + number]
        position += number
        assert x == position - 1
        finite = [value for value in part if not math.isnan(value)]
        assert (low, high, last) == (min(finite, default=None), max(finite, default=None), part[-1])


def test_lists_show_sort_and_filter_by_a_metric(api: Api, ann: Person, bob: Person) -> None:
    long = "ä" * 63  # as long as a name may be
    values = {long: [0.5, 0.9], "B": [0.7], "c": [0.7, 0.6], "d": [math.nan], "e": []}
    ids = {}
    for name, reported in values.items():
        ids[name] = ann.submit(name_of(name))["id"]
        agent = api.attempt(ids[name]).agents[0]
        agent.start()
        told = ["nan" if math.isnan(value) else value for value in reported]
        send(agent, 0, *(record(step, group="val", acc=value) for step, value in enumerate(told)))
    api.set_state(ids["c"], "PENDING")

    def listed(**params: Any) -> list[str]:
        found: list[str] = []
        cursor = None
        while True:
            answer = ann.http.get("/api/v1/jobs", params={**params, "cursor": cursor} if cursor else params)
            assert answer.status_code == 200, answer.text
            found += [job["name"] for job in answer.json()["jobs"]]
            cursor = answer.json()["next_cursor"]
            if not cursor:
                return found

    equal = sorted(("B", "c"), key=lambda name: ids[name], reverse=True)
    for limit in (1, 2, 50):
        assert listed(limit=limit) == ["e", "d", "c", "B", long]
        assert listed(limit=limit, sort="created_at") == [long, "B", "c", "d", "e"]
        assert listed(limit=limit, sort="-metric:val/acc") == [long, "B", "c", "e", "d"]
        assert listed(limit=limit, sort="metric:val/acc") == ["c", "B", long, "e", "d"]
        assert listed(limit=limit, sort="-metric:val/acc:max") == [long, *equal, "e", "d"]
        assert listed(limit=limit, sort="metric:val/acc:min") == [long, "c", "B", "e", "d"]
        assert listed(limit=limit, sort="name") == ["B", "c", "d", "e", long]
        assert listed(limit=limit, sort="state") == ["e", "d", "B", long, "c"]
    assert listed(metric="val/acc>=0.7") == ["B", long]
    assert listed(metric=["val/acc.max = 0.7", "val/acc<0.65"]) == ["c"]
    assert listed(metric="acc>0") == []
    newest = ann.http.get("/api/v1/jobs?q=ä").json()["jobs"][0]
    assert newest["metrics"] == {"val/acc": {"last": 0.9, "min": 0.5, "max": 0.9, "step": 1, "time": T}}
    assert ann.http.get(f"/api/v1/jobs/{newest['id']}").json()["metrics"] == newest["metrics"]
    other = ann.http.get("/api/v1/jobs?sort=name&limit=1").json()["next_cursor"]
    for wrong in (
        "sort=loss",
        "sort=metric:",
        "metric=loss",
        "metric=a<b",
        "metric=a<nan",
        f"sort=state&cursor={other}",
    ):
        assert code_of(ann.http.get(f"/api/v1/jobs?{wrong}")) == "invalid_request", wrong
    # Another project's: not listed, not read.
    assert bob.http.get("/api/v1/jobs?sort=-metric:val/acc&metric=val/acc>0").json()["jobs"] == []
    for path in ("metrics", "metrics/query", "metrics/records"):
        assert code_of(bob.http.get(f"/api/v1/jobs/{ids['c']}/{path}")) == "not_found"


def name_of(name: str) -> str:
    return f"name: {name}\nframework: {{name: pytorch, command: echo hello}}\n"


def test_one_learners_value_is_shown_and_goes_with_the_job(api: Api, ann: Person, gang: Attempted) -> None:
    first, second = gang.agents
    send(second, 0, record(0, loss=9))
    send(first, 0, record(0, T + 1, loss=2))
    send(second, 1, record(1, T + 2, loss=8))
    shown = ann.http.get(f"/api/v1/jobs/{gang.job_id}").json()["metrics"]
    assert shown == {"loss": {"last": 2, "min": 2, "max": 2, "step": 0, "time": T + 1}}
    with api.context.database.transaction() as session:
        session.execute(delete(Job).where(Job.id == gang.job_id))
        for table in (MetricCursor, MetricBatch, MetricRecords, MetricSeries, JobMetric):
            assert session.scalar(select(func.count()).where(table.job_id == gang.job_id)) == 0


def test_limits_are_told_once_and_hold(servers: Servers, api_settings: Settings) -> None:
    limits = {"metric_points_per_job": 3000, "system_points_per_job": 5, "metric_series_per_job": 3}
    small = api_settings.model_copy(update={"limits": LimitSettings.model_validate(limits)})
    api = Api(small)
    try:
        person = api.person()
        attempt = api.attempt(person.submit()["id"])
        (agent,) = attempt.agents
        agent.start()
        send(agent, 0, *(record(step, a=step, b=step, c=step, d=step) for step in range(600)))
        send(agent, 1, *(record(step, a=step) for step in range(600, 1800)), *(system(cpu_percent=1) for _ in range(9)))
        until_folded(api, attempt)
        send(agent, 2, record(1800, a=1), system(cpu_percent=1))
        answer = person.http.get(f"/api/v1/jobs/{attempt.job_id}/metrics").json()
        points = {metric["name"]: metric["points"] for metric in answer["series"]}
        assert points == {"a": 1200, "b": 600, "c": 600, "system/cpu_percent": 5}
        told = person.http.get(f"/api/v1/jobs/{attempt.job_id}/events").json()["events"]
        warnings = [event["message"] for event in told if event["kind"] == "warning"]
        assert sorted(warnings) == sorted(answer["notes"])
        assert len(warnings) == 3
        assert "the job has reported its limit of 3,000 values: the rest is dropped" in warnings
    finally:
        api.stop()
