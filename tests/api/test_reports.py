"""Reports: a heartbeat, lines and metrics in one call. What each part does is tested beside its own call."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from sqlalchemy import func, select
from tests.api.conftest import Agent, Api, Attempted, Person, code_of

from weft_api.access.attempts import AttemptToken
from weft_api.app import make_context
from weft_api.http.problems import STALE_ATTEMPT, Problem
from weft_api.learner import combined
from weft_api.streaming.tunnels import Tunnels
from weft_core.store.models import Learner
from weft_core.tokens import hash_token

ALIVE: dict[str, Any] = {"stop": False, "grace_seconds": None, "dump": None, "look": None, "tunnels": []}


@pytest.fixture
def gang(api: Api, ann: Person) -> Attempted:
    attempt = api.attempt(ann.submit(set={"learners": "2"})["id"])
    for agent in attempt.agents:
        agent.start()
    return attempt


def _logs(sequence: int, *lines: str) -> dict[str, Any]:
    return {"sequence": sequence, "lines": [{"t": 1_769_847_309_000, "s": line} for line in lines]}


def _metrics(sequence: int, loss: float) -> dict[str, Any]:
    record = {"t": 1_769_847_309_000, "kind": "user", "group": "", "etimes": {"iteration": sequence}}
    return {"sequence": sequence, "records": [record | {"values": {"loss": loss}}]}


def _lines(person: Person, job_id: str) -> list[str]:
    return [line["text"] for line in person.http.get(f"/api/v1/jobs/{job_id}/logs").json()["lines"]]


def _losses(person: Person, job_id: str) -> list[float]:
    records = person.http.get(f"/api/v1/jobs/{job_id}/metrics/records").json()["records"]
    return [record["values"]["loss"] for record in records]


def test_a_report_takes_in_all_that_an_agent_has_and_twice_is_once(api: Api, ann: Person, gang: Attempted) -> None:
    agent = gang.agents[0]
    parts = {"heartbeat": {"wrote": True}, "logs": _logs(0, "a", "b"), "metrics": _metrics(0, 0.5)}
    for _ in range(2):
        answer = agent.post("report", **parts)
        assert (answer.status_code, answer.json()) == (200, {"heartbeat": ALIVE, "pause": 0, "refused": {}})
    assert agent.post("report", logs=_logs(1, "c")).json() == {"heartbeat": None, "pause": 0, "refused": {}}
    agent.log(2, "d")  # the calls of an older agent count on
    assert _lines(ann, gang.job_id) == ["a", "b", "c", "d"]
    assert _losses(ann, gang.job_id) == [0.5]
    with api.context.database.transaction() as session:
        rows = session.execute(select(Learner.rank, Learner.wrote).where(Learner.attempt_id == gang.id))
        assert {row.rank: row.wrote for row in rows} == {0: True, 1: None}
    api.set_attempt(gang, stop_requested_at=func.now(), grace_seconds=7)
    stop = agent.post("report", heartbeat={}).json()["heartbeat"]
    assert (stop["stop"], stop["grace_seconds"]) == (True, 7)


def test_a_part_that_is_refused_keeps_out_no_other(
    api: Api, ann: Person, gang: Attempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = gang.agents[0]
    monkeypatch.setattr(api.context.settings.limits, "log_bytes_per_job", 1)
    for sequence in range(2):
        answer = agent.post(
            "report", heartbeat={}, logs=_logs(sequence, "y" * 2000), metrics=_metrics(sequence, sequence)
        )
    assert answer.json()["heartbeat"] == ALIVE
    refused = answer.json()["refused"]
    assert {name: (problem["status"], problem["code"]) for name, problem in refused.items()} == {
        "logs": (409, "log_full")
    }
    assert _losses(ann, gang.job_id) == [0, 1]
    answer = agent.post("report", heartbeat=[], logs=_logs(-1, "z"), metrics=_metrics(2, 2) | {"sequence": "x"})
    refused = answer.json()["refused"]
    assert {name: problem["code"] for name, problem in refused.items()} == dict.fromkeys(
        ("heartbeat", "logs", "metrics"), "invalid_request"
    )
    assert refused["logs"]["detail"].startswith("body.sequence: ")
    many = {f"m{number}": 1.0 for number in range(combined.METRIC_BYTES // 100)}
    big = {"sequence": 3, "records": [{**_metrics(3, 1)["records"][0], "values": many}]}
    assert agent.post("report", metrics=big).json()["refused"]["metrics"]["code"] == "too_large"
    assert agent.post("report", logs={"x": "y" * (combined.LOG_BYTES + combined.METRIC_BYTES)}).status_code == 413


def test_reports_that_wait_are_stored_together_and_each_gets_its_own_answer(
    api: Api, ann: Person, gang: Attempted
) -> None:
    first, second = gang.agents
    strange = Agent(first.http, 0)
    bodies: list[dict[str, Any]] = [
        {"rank": 0, "instance": first.instance, "heartbeat": {}, "logs": _logs(0, "first")},
        {"rank": 0, "instance": strange.instance, "heartbeat": {}, "logs": _logs(1, "strange")},
        {"rank": 1},
        {"rank": 1, "instance": second.instance, "logs": _logs(0, "second"), "metrics": _metrics(0, 0.25)},
    ]
    token = AttemptToken(hash_token(gang.token))
    found = combined.take_in(api.context, token, [json.dumps(body).encode() for body in bodies])
    assert [outcome.answer.heartbeat is not None for outcome in found if isinstance(outcome, combined.Taken)] == [
        True,
        False,
    ]
    assert isinstance(found[1], Problem)
    assert found[1].kind is STALE_ATTEMPT
    assert isinstance(found[2], RequestValidationError)
    assert _lines(ann, gang.job_id) == ["first", "second"]
    assert _losses(ann, gang.job_id) == [0.25]
    api.end_attempt(gang)
    late = first.post("report", logs=_logs(1, "late") | {"late": True})
    assert code_of(late) == "stale_attempt", "only the call for log lines takes those of a dead agent"


def test_a_report_prolongs_the_hold_of_a_heartbeat(api: Api) -> None:
    async def scenario() -> list[dict[str, str]]:
        context = make_context(api.settings)  # the server's own belongs to the loop of its thread
        tunnels = Tunnels(context)
        holding = asyncio.create_task(tunnels.hold("attempt", 0, 5.0))
        await asyncio.sleep(0.01)
        held = tunnels._held["attempt", 0]
        begun = held.limit.when()
        tunnels.prolong("attempt", 1)
        assert held.limit.when() == begun, "another learner's"
        tunnels.prolong("attempt", 0)
        assert begun is not None
        assert begun < (held.limit.when() or 0) <= held.end
        for _ in range(3):
            tunnels.prolong("attempt", 0)
        assert held.end == pytest.approx(begun + 15, abs=1), "an agent gives up 20 s after the time that it asks for"
        endless = asyncio.create_task(tunnels.hold("another", 0, 3600.0))
        await asyncio.sleep(0.01)
        assert tunnels._held["another", 0].end <= asyncio.get_running_loop().time() + 25
        tunnels.release()
        assert await endless == []
        try:
            return await holding
        finally:
            await context.close()

    assert asyncio.run(scenario()) == []
