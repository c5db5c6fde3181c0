"""Elastic jobs at the API: learners meet in round after round, whichever learners are lost or join, in any order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select
from tests.api.conftest import HELLO, Agent, Api, Attempted, Person, code_of

from weft_core.lifecycle import rounds
from weft_core.settings import Settings
from weft_core.store.models import Attempt, Event, Job, Learner, Round

MANIFEST = HELLO + "elastic: {min: 1, max: 4}\nlearners: 3\n"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine, a wait is over when its test says so."""
    monkeypatch.setattr(rounds, "JOIN_WAIT", timedelta(minutes=10))
    monkeypatch.setattr(rounds, "START_WAIT", timedelta(minutes=10))


@pytest.fixture
def gang(api: Api, ann: Person) -> Attempted:
    """Three learners that have their start grants."""
    made = api.attempt(ann.submit(MANIFEST)["id"])
    for agent in made.agents:
        agent.start()
    return made


def call(agent: Agent, state: str, after: int, wait: float = 0, **more: Any) -> dict[str, Any]:
    where = {"address": "127.0.0.1", "ports": [1000 * (after + 1) + agent.rank]} if state == "ready" else {}
    answer = agent.post("round", state=state, round=after, wait=wait, **where, **more)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def meet(agents: list[Agent], after: int) -> dict[str, Any]:
    """All arrive for the round after this one at the same time; the answer, which is the same for all."""
    with ThreadPoolExecutor(len(agents)) as pool:
        answers = list(pool.map(lambda agent: call(agent, "ready", after, wait=30), agents))
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


def members(answer: dict[str, Any]) -> list[int]:
    assert answer["verdict"] == "run"
    return [peer["rank"] for peer in answer["peers"]]


def lose(api: Api, gang: Attempted, *ranks: int) -> None:
    """As the reconciler does."""
    with api.context.database.transaction() as session:
        for rank in ranks:
            row = session.get_one(Learner, (gang.id, rank))
            row.left_at, row.left_reason = func.now(), "killed by signal 9 (SIGKILL)"


def join(api: Api, gang: Attempted) -> Agent:
    """Does what admission does, and then what the new learner's agent does."""
    with api.context.database.transaction() as session:
        attempt = session.get_one(Attempt, gang.id)
        rank = int(attempt.resources["learners"])
        attempt.resources = {**attempt.resources, "learners": rank + 1}
        session.add(Learner(attempt_id=gang.id, rank=rank, project_id=attempt.project_id))
    agent = Agent(gang.agents[0].http, rank)
    agent.start()
    return agent


def events(api: Api, gang: Attempted) -> list[str]:
    with api.context.database.transaction() as session:
        found = select(Event.message).where(Event.job_id == gang.job_id, Event.kind == "elastic").order_by(Event.id)
        return list(session.scalars(found))


def test_the_first_round_has_all_learners_in_order(api: Api, gang: Attempted) -> None:
    assert call(gang.agents[1], "ready", 0)["verdict"] == "wait"
    first = meet(gang.agents, 0)
    assert members(first) == [0, 1, 2]
    assert (first["round"], first["restart"]) == (1, True)
    assert first["peers"][2]["ports"] == [1002]
    assert call(gang.agents[2], "ready", 0) == first, "an answer that was lost is given again"
    assert call(gang.agents[2], "running", 1)["verdict"] == "wait"


def test_a_loss_opens_a_round_and_the_next_one_leads(api: Api, ann: Person, gang: Attempted) -> None:
    meet(gang.agents, 0)
    lose(api, gang, 0)
    heard = call(gang.agents[1], "running", 1, wait=10)
    assert (heard["verdict"], heard["round"], heard["restart"]) == ("change", 2, True)
    assert heard["reason"] == "learner 1 was lost (killed by signal 9 (SIGKILL))"
    assert call(gang.agents[1], "ready", 1)["verdict"] == "wait", "the other one still ends its workers"
    assert members(meet(gang.agents[1:], 1)) == [1, 2]
    assert events(api, gang) == ["round 2: training goes on with 2 learners"]
    shown = ann.http.get(f"/api/v1/jobs/{gang.job_id}").json()["attempts"][0]
    assert (shown["round"]["n"], shown["round"]["learners"], shown["round"]["processes"]) == (2, [2, 3], 2)
    assert [learner["lost"] for learner in shown["learners"]] == ["killed by signal 9 (SIGKILL)", None, None]


def test_one_that_was_lost_may_do_nothing_any_more(api: Api, gang: Attempted) -> None:
    meet(gang.agents, 0)
    lose(api, gang, 2)
    zombie = gang.agents[2]
    assert call(zombie, "running", 1)["verdict"] == "leave"
    assert call(zombie, "ready", 1)["verdict"] == "leave"
    assert code_of(zombie.post("heartbeat")) == "stale_attempt"
    assert code_of(zombie.post("objects", space="checkpoints", op="put", keys=["a"])) == "stale_attempt"
    assert zombie.post("storing", exit_code=0).json() == {"granted": False, "wait": False}
    assert zombie.post("exit", exit_code=1, reason="late", last_lines=[]).status_code == 204


def test_a_learner_joins(api: Api, gang: Attempted) -> None:
    meet(gang.agents, 0)
    fourth = join(api, gang)
    assert call(fourth, "ready", 0)["verdict"] == "wait"
    heard = call(gang.agents[0], "running", 1, wait=10)
    assert (heard["verdict"], heard["reason"]) == ("change", "learner 4 joined")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call, fourth, "ready", 0, 30)
        second = meet(gang.agents, 1)
    assert members(second) == [0, 1, 2, 3]
    assert waiting.result() == second
    assert events(api, gang) == ["learner 4 joined: training goes on with 4 learners"]


def test_one_that_joins_waits_a_moment_for_others_that_have_started(api: Api, gang: Attempted) -> None:
    meet(gang.agents, 0)
    fourth, fifth = join(api, gang), join(api, gang)
    call(fourth, "ready", 0)
    assert call(gang.agents[0], "running", 1)["verdict"] == "wait"
    call(fifth, "ready", 0)
    assert call(gang.agents[0], "running", 1)["reason"] == "learners 4 and 5 joined"


def test_two_losses_at_once_and_a_third_while_the_round_gathers(api: Api, gang: Attempted) -> None:
    meet(gang.agents, 0)
    fourth = join(api, gang)
    call(fourth, "ready", 0)
    lose(api, gang, 0, 1)
    assert call(gang.agents[2], "running", 1)["verdict"] == "change"
    lose(api, gang, 2)
    assert members(call(fourth, "ready", 0)) == [3], "who joined goes on alone"


def test_broken_workers_go_on_when_somebody_else_was_to_blame(api: Api, gang: Attempted) -> None:
    meet(gang.agents, 0)
    survivor = gang.agents[0]
    call(survivor, "broken", 1, exit_code=1, reason="exit code 1", last_lines=["Connection closed by peer"])
    assert call(survivor, "ready", 1)["verdict"] == "wait", "somebody has to judge that first"
    with api.context.database.transaction() as session:
        row = session.get_one(Learner, (gang.id, 0))
        assert (row.broken, row.exit_code, row.last_lines) == (1, 1, "Connection closed by peer")
        assert session.get_one(Job, gang.job_id).next_step_at is not None
    lose(api, gang, 1)
    second = meet([survivor, gang.agents[2]], 1)
    assert members(second) == [0, 2]
    with api.context.database.transaction() as session:
        assert session.get_one(Learner, (gang.id, 0)).exit_code is None, "that failure is over"


def test_the_leaders_end_is_everybodys(api: Api, gang: Attempted) -> None:
    meet(gang.agents, 0)
    leader, second, third = gang.agents
    fourth = join(api, gang)
    assert leader.post("storing", exit_code=0).json() == {"granted": False, "wait": True}
    lose(api, gang, 2)
    assert call(second, "running", 1)["verdict"] == "wait", "nobody starts again what has been trained"
    assert call(second, "ready", 1)["verdict"] == "finish"
    assert call(fourth, "ready", 0)["verdict"] == "finish"
    for agent in (second, fourth):
        agent.post("storing", exit_code=0)
        agent.post("exit", exit_code=0, reason="", last_lines=[])
    assert leader.post("storing", exit_code=0).json()["granted"], "last of all, and not waiting for who was lost"
    assert third.post("storing", exit_code=0).json()["granted"] is False


def test_the_last_rounds_leader_stores_last(api: Api, gang: Attempted) -> None:
    meet(gang.agents, 0)
    lose(api, gang, 0)
    _, leader, last = gang.agents
    meet([leader, last], 1)
    leader.post("storing", exit_code=0)
    assert last.post("storing", exit_code=0).json()["granted"]
    assert not leader.post("storing", exit_code=0).json()["granted"]
    last.post("exit", exit_code=0, reason="", last_lines=[])
    assert leader.post("storing", exit_code=0).json()["granted"]


def test_a_round_survives_a_restart_of_the_api(api: Api, api_settings: Settings, gang: Attempted) -> None:
    meet(gang.agents, 0)
    lose(api, gang, 1)
    call(gang.agents[0], "ready", 1)
    other = Api(api_settings)
    try:
        http = other.client(gang.token)
        agents = [Agent(http, agent.rank, agent.instance) for agent in (gang.agents[0], gang.agents[2])]
        assert members(meet(agents, 1)) == [0, 2]
    finally:
        other.stop()


def test_the_first_round_does_not_wait_for_ever(api: Api, ann: Person) -> None:
    gang = api.attempt(ann.submit(MANIFEST)["id"])
    first = gang.agents[0]
    first.start()
    assert call(first, "ready", 0)["verdict"] == "wait"
    with api.context.database.transaction() as session:
        session.get_one(Round, (gang.id, 1)).opened_at = datetime.now(UTC) - rounds.START_WAIT - timedelta(seconds=1)
    assert members(call(first, "ready", 0)) == [0]


def horovod(api: Api, ann: Person) -> Attempted:
    manifest = MANIFEST.replace("name: pytorch", "name: horovod")
    made = api.attempt(ann.submit(manifest)["id"])
    for agent in made.agents:
        agent.start()
    meet(made.agents, 0)
    return made


def _leader(api: Api, gang: Attempted) -> None:
    lose(api, gang, 0)


def _survivor(api: Api, gang: Attempted) -> None:
    call(gang.agents[1], "broken", 1, exit_code=1)
    lose(api, gang, 2)


@pytest.mark.parametrize("happens", [_leader, _survivor])
def test_horovods_workers_start_again_with_a_new_driver_only(
    api: Api, ann: Person, happens: Callable[[Api, Attempted], None]
) -> None:
    gang = horovod(api, ann)
    happens(api, gang)
    assert call(gang.agents[1], "running", 1)["restart"] is True


def test_horovods_workers_run_on_and_a_late_failure_is_the_losss(api: Api, ann: Person) -> None:
    gang = horovod(api, ann)
    lose(api, gang, 2)
    assert call(gang.agents[0], "running", 1)["restart"] is False
    second = meet(gang.agents[:2], 1)
    assert (members(second), second["restart"]) == ([0, 1], False)
    call(gang.agents[1], "broken", 2, exit_code=1)
    heard = call(gang.agents[0], "running", 2)
    assert (heard["verdict"], heard["round"], heard["restart"]) == ("change", 3, True)


def test_a_job_that_is_not_elastic_has_no_rounds(api: Api, ann: Person) -> None:
    gang = api.attempt(ann.submit(HELLO)["id"])
    gang.agents[0].start()
    answer = gang.agents[0].post("round", state="ready", round=0)
    assert code_of(answer) == "invalid_request"
