"""The API goes away, answers late, twice, never: the learner carries on, and its log has every line once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.trainer.agents import RUNTIME, Launch, ended, environment
from tests.trainer.api_double import Refused
from tests.trainer.conftest import StartApi

_LINES = 3000
_TALKS = (
    f"for i in $(seq {_LINES}); do echo line $i; done; echo ready; while ! [ -e go ]; do sleep 0.02; done; echo last"
)
_EXPECTED = [*(f"line {i}" for i in range(1, _LINES + 1)), "ready", "last"]


@pytest.mark.parametrize("fault", ["away", "broken"])
def test_api_away_before_the_start(start_api: StartApi, launch: Launch, fault: str) -> None:
    api = start_api("echo hello")
    setattr(api, fault, True)
    agent = launch(api)
    with pytest.raises(AssertionError):
        agent.wait(1)
    setattr(api, fault, False)
    assert agent.wait() == 0
    assert api.learners[0].lines == ["hello"]


@pytest.mark.parametrize("fault", ["away", "broken"])
def test_api_away_while_the_program_talks_and_ends(start_api: StartApi, launch: Launch, fault: str) -> None:
    api = start_api(_TALKS)
    agent = launch(api)
    api.wait_for(lambda: len(api.learners[0].lines) > 0)
    setattr(api, fault, True)
    (agent.workdir / "model" / "go").touch()
    with pytest.raises(AssertionError):
        agent.wait(1)
    setattr(api, fault, False)
    assert agent.wait() == 0
    assert api.learners[0].lines == _EXPECTED
    assert api.problems == []


def test_lost_answers(start_api: StartApi, launch: Launch) -> None:
    """Every operation's first answer is lost after it was done, some of the log's more often."""
    api = start_api(_TALKS.replace("while ! [ -e go ]; do sleep 0.02; done; ", ""))
    for operation in ("start", "address", "phase", "storing", "objects", "exit", "heartbeat"):
        api.lose[operation] = 1
    api.lose["logs"] = 3
    assert launch(api).wait() == 0
    learner = api.learners[0]
    assert learner.lines == _EXPECTED
    assert learner.exit is not None
    assert api.problems == []


def test_a_slow_api_slows_no_program(start_api: StartApi, launch: Launch) -> None:
    api = start_api("for i in 1 2 3; do echo $i; done; date +%s > $RESULT_DIR/ended")
    api.slow = 0.2
    assert launch(api).wait() == 0
    assert api.learners[0].lines == ["1", "2", "3"]


def test_another_instance_holds_the_grant(start_api: StartApi, launch: Launch) -> None:
    api = start_api("echo ran")
    api.learners[0].instance = "somebody else"
    assert launch(api).wait() == 0
    assert api.learners[0].lines == []


def test_a_stale_attempt_runs_nothing(start_api: StartApi, launch: Launch) -> None:
    api = start_api("touch ran")
    api.gone = True
    agent = launch(api)
    assert agent.wait() == 0
    assert not (agent.workdir / "model" / "ran").exists()


def test_a_wrong_token_is_said(start_api: StartApi, launch: Launch) -> None:
    api = start_api("echo ran")
    agent = launch(api, WEFT_ATTEMPT_TOKEN="wrong")
    assert agent.wait() == 1
    assert agent.log.read_text() == "weft_trainer: the API refused 'start': refused (401)\n"


def test_missing_variables_are_said(start_api: StartApi, launch: Launch) -> None:
    agent = launch(start_api("echo ran"), WEFT_RANK="")
    assert agent.wait() == 2
    assert "WEFT_RANK is not set" in agent.log.read_text()


def test_a_refused_log_stops_neither_program_nor_results(start_api: StartApi, launch: Launch) -> None:
    api = start_api("echo a; echo model > $RESULT_DIR/model")
    api.refuse["logs"] = Refused(413, "log_limit", "this job's log has reached 4 GiB")
    agent = launch(api)
    assert agent.wait() == 0
    assert api.calls["logs"] == 0
    assert api.objects["results/learner-1/training-log.txt"] == b"a\n"
    assert "4 GiB" in agent.log.read_text()


def test_the_log_of_a_killed_agent_arrives_by_its_successor(start_api: StartApi, launch: Launch) -> None:
    """The engine may start the learner's process again; the grant is taken, but the spool is brought home first."""
    api = start_api(_TALKS)
    api.refuse["logs"] = Refused(503, "busy")
    agent = launch(api)
    spool = agent.workdir / "agent" / "spool" / "000000.jsonl"
    api.wait_for(lambda: api.learners[0].phase == "PROCESSING")
    while not (spool.exists() and b'"ready"' in spool.read_bytes()):
        assert agent.process.poll() is None
    agent.kill()
    agent.process.wait()
    del api.refuse["logs"]
    assert launch(api).wait() == 0
    assert api.learners[0].lines == _EXPECTED[:-1]
    assert api.problems == []


def test_on_ray_the_guard_has_sent_what_a_killed_agent_had_not(start_api: StartApi, tmp_path: Path) -> None:
    api = start_api(_TALKS)
    work = tmp_path / "work"
    env = environment(api, work, tmp_path / "cache")
    plan = {"argv": [sys.executable, "-m", "weft_trainer"], "env": env, "work": str(work)}
    api.refuse["logs"] = Refused(503, "busy")
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", RUNTIME / "weft_trainer/ray_gang/guard.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert guard.stdin is not None
    assert guard.stdout is not None
    with guard, guard.stdin, guard.stdout:
        guard.stdin.write(json.dumps(plan).encode() + b"\n")
        guard.stdin.flush()
        pid = json.loads(guard.stdout.readline())["started"]
        spool = work / "agent" / "spool" / "000000.jsonl"
        api.wait_for(lambda: spool.exists() and b'"ready"' in spool.read_bytes())
        os.kill(pid, signal.SIGKILL)
        del api.refuse["logs"]
        assert json.loads(guard.stdout.readline())["exit_code"] == -signal.SIGKILL
        assert guard.stdout.read() == b"", "the guard has ended"
    assert api.learners[0].lines == _EXPECTED[:-1]
    assert api.problems == []
    assert not work.exists()


def test_results_wait_for_a_store_that_is_away(start_api: StartApi, launch: Launch) -> None:
    api = start_api("echo model > $RESULT_DIR/model")
    api.store_away = True
    agent = launch(api)
    api.wait_for(lambda: bool(api.learners[0].storing))
    with pytest.raises(AssertionError):
        agent.wait(0.5)
    api.store_away = False
    assert agent.wait() == 0
    assert api.objects["results/model"] == b"model\n"


def test_the_exit_is_reported_with_no_exit_file(start_api: StartApi, launch: Launch) -> None:
    api = start_api("exit 4")
    api.refuse["objects"] = Refused(403, "forbidden", "no store for you")
    agent = launch(api)
    assert agent.wait() == 4
    assert api.learners[0].exit is not None
    reason = api.learners[0].exit["reason"]
    assert reason.startswith("exit code 4 (partial results were not stored: ")
    assert "no store for you" in reason
    assert "exit.json was not written" in agent.log.read_text()


def test_results_that_are_refused_fail_the_learner(start_api: StartApi, launch: Launch) -> None:
    api = start_api("echo model > $RESULT_DIR/model")
    api.refuse["objects"] = Refused(403, "forbidden", "no store for you")
    assert launch(api).wait() == 1
    assert api.learners[0].exit is not None
    assert "results can't be stored" in api.learners[0].exit["reason"]
    assert "no store for you" in api.learners[0].exit["reason"]


def test_a_stop_ends_an_agent_that_cannot_reach_the_api(start_api: StartApi, launch: Launch) -> None:
    api = start_api("echo ready; sleep 1000", grace_seconds=1)
    agent = launch(api)
    api.wait_for(lambda: api.learners[0].lines == ["ready"])
    programs = agent.descendants
    api.away = True
    agent.process.send_signal(signal.SIGINT)
    api.wait_for(lambda: True)
    while not all(ended(program.pid) for program in programs[1:]):
        assert agent.process.poll() is None
    api.away = False
    assert agent.wait() == 143
