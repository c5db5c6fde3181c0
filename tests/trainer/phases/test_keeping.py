"""Learners whose command has failed, and that stay for a look inside."""

from __future__ import annotations

import psutil
from tests.trainer.agents import Launch
from tests.trainer.api_double import ApiDouble, Refused
from tests.trainer.conftest import StartApi

_FAILS = "echo it breaks; exit 3"


def kept(api: ApiDouble) -> bool:
    return api.learners[0].kept is not None


def test_a_failed_learner_stays_until_it_is_stopped(start_api: StartApi, launch: Launch) -> None:
    api = start_api(_FAILS, keep_seconds=3600)
    agent = launch(api)
    api.wait_for(lambda: kept(api))
    report = api.learners[0].kept
    assert report == {"exit_code": 3, "reason": "exit code 3", "last_lines": report["last_lines"], "seconds": 3600}
    assert "it breaks" in report["last_lines"]
    beats = len(api.learners[0].heartbeats)
    api.wait_for(lambda: len(api.learners[0].heartbeats) > beats + 1)
    assert psutil.pid_exists(agent.process.pid)
    assert api.learners[0].exit is None
    api.stop = {"stop": True, "grace_seconds": 60}
    assert agent.wait() == 3
    assert api.learners[0].exit is not None
    assert (api.learners[0].exit["exit_code"], api.learners[0].exit_reason) == (3, "exit code 3")


def test_its_time_ends(start_api: StartApi, launch: Launch) -> None:
    api = start_api(_FAILS, keep_seconds=0.1)
    assert launch(api).wait() == 3
    assert kept(api)


def test_a_learner_does_not_stay_after_success_or_a_stop_or_without_the_key(
    start_api: StartApi, launch: Launch
) -> None:
    api = start_api("true", keep_seconds=3600)
    assert launch(api).wait() == 0
    assert not kept(api)
    api = start_api("echo ready; trap 'exit 3' TERM; while true; do sleep 0.05; done", keep_seconds=3600)
    agent = launch(api)
    api.wait_for(lambda: "ready" in api.learners[0].lines)
    api.stop = {"stop": True, "grace_seconds": 60}
    assert agent.wait() == 143
    assert not kept(api)
    api = start_api(_FAILS)
    assert launch(api).wait() == 3
    assert not kept(api)


def test_an_api_that_refuses_lets_it_end(start_api: StartApi, launch: Launch) -> None:
    api = start_api("sleep 0.5; exit 3", keep_seconds=3600)
    agent = launch(api)
    api.wait_for(lambda: "PROCESSING" in api.learners[0].phases)
    api.refuse["phase"] = Refused(422, "invalid", "no such key")
    assert agent.wait() == 3
    assert any("it does not stay" in line for line in api.learners[0].lines)
