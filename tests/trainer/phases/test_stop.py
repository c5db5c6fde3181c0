"""Stops, fences and sudden deaths: no process is left, and checkpoints, logs and results are kept."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from tests.trainer.agents import Launch, ended, words
from tests.trainer.api_double import ApiDouble
from tests.trainer.conftest import StartApi

_SAVES_ON_TERM = """
trap 'echo saved > $CHECKPOINT_DIR/last; echo partial > $RESULT_DIR/partial; echo bye; exit 0' TERM
echo ready
while true; do sleep 0.05; done
"""
_IGNORES_TERM = "trap 'echo no' TERM; echo ready; while true; do sleep 0.05; done"


def ready(api: ApiDouble, rank: int = 0) -> None:
    api.wait_for(lambda: "ready" in api.learners[rank].lines)


@pytest.mark.parametrize("by", ["signal", "heartbeat"])
def test_stop_lets_the_program_save(start_api: StartApi, launch: Launch, by: str) -> None:
    api = start_api(_SAVES_ON_TERM)
    agent = launch(api)
    ready(api)
    if by == "signal":
        agent.terminate()
    else:
        api.stop = {"stop": True, "grace_seconds": 60}
    assert agent.wait() == 143
    learner = api.learners[0]
    assert learner.exit is not None
    assert (learner.exit["exit_code"], learner.exit["reason"]) == (143, "stopped")
    assert [line for line in learner.lines if line != "Terminated"] == ["ready", "bye"]  # bash's own, of its sleep
    assert api.objects["results/partial"] == b"partial\n"
    assert [key for key in api.objects if key.startswith("checkpoints/generations/")]


def test_grace_ends_with_a_kill(start_api: StartApi, launch: Launch) -> None:
    api = start_api(_IGNORES_TERM)
    agent = launch(api)
    ready(api)
    api.stop = {"stop": True, "grace_seconds": 4}  # three quarters of it are the program's
    assert agent.wait() == 143
    assert "no" in api.learners[0].lines


def test_grace_from_the_environment(start_api: StartApi, launch: Launch) -> None:
    api = start_api(_IGNORES_TERM, grace_seconds=600)
    agent = launch(api, WEFT_GRACE_SECONDS="0.4")
    ready(api)
    agent.terminate()
    assert agent.wait() == 143


def test_children_that_save_outlive_their_shell(start_api: StartApi, launch: Launch) -> None:
    """A shell between the agent and the program dies of SIGTERM at once; the program has the grace nevertheless."""
    program = (
        "import os, signal, sys, time\\n"
        "def save(*_):\\n    time.sleep(0.3); open(os.environ['RESULT_DIR'] + '/saved', 'w').write('x'); sys.exit()\\n"
        "signal.signal(signal.SIGTERM, save); print('ready')\\n"
        "while True: time.sleep(0.05)"
    )
    api = start_api(f'printf "{program}" > p.py; python p.py; echo not reached')
    agent = launch(api)
    ready(api)
    agent.terminate()
    assert agent.wait() == 143
    assert api.objects["results/saved"] == b"x"
    assert "not reached" not in api.learners[0].lines


def test_stop_before_the_peers_have_come(start_api: StartApi, launch: Launch) -> None:
    api = start_api("echo x", learners=2)
    agent = launch(api, 0)
    api.wait_for(lambda: api.learners[0].address is not None)
    agent.terminate()
    assert agent.wait() == 143
    learner = api.learners[0]
    assert learner.exit is not None
    assert learner.exit["reason"] == "stopped"
    assert learner.lines == []
    assert learner.storing == []


def test_stop_while_the_others_still_train(start_api: StartApi, launch: Launch) -> None:
    """A learner that has ended well and waits for the grant learns that the gang has failed: it stores what it has."""
    api = start_api("echo model > $RESULT_DIR/model; [ $LEARNER_ID = 1 ] || sleep 1000", learners=2)
    api.specs[1]["heartbeat_seconds"] = 60  # it hears of the stop later: had it ended, the first would get the grant
    first, second = launch(api, 0), launch(api, 1)
    api.wait_for(lambda: bool(api.learners[0].storing))
    api.stop = {"stop": True, "grace_seconds": 1}
    assert first.wait() == 143
    second.terminate()
    assert second.wait() == 143
    assert api.learners[0].storing[0] == 0
    assert api.learners[0].storing[-1] == 143
    assert api.objects["results/model"] == b"model\n"


def test_fenced_while_running(start_api: StartApi, launch: Launch) -> None:
    api = start_api(_SAVES_ON_TERM)
    agent = launch(api)
    ready(api)
    programs = agent.descendants
    api.gone = True
    assert agent.wait() == 0
    assert all(ended(program.pid) for program in programs)
    assert api.learners[0].exit is None
    assert api.objects == {}, "a fenced learner stores nothing"
    assert api.learners[0].lines == ["ready"], "killed at once, with no chance to say bye"


def test_fenced_at_the_storing_grant(start_api: StartApi, launch: Launch) -> None:
    api = start_api(
        "echo model > $RESULT_DIR/model; echo ready; while ! [ -e go ]; do sleep 0.02; done", heartbeat_seconds=60
    )
    agent = launch(api)
    ready(api)
    api.gone = True
    (agent.workdir / "model" / "go").touch()
    assert agent.wait() == 0
    assert api.objects == {}


def test_a_killed_agent_takes_its_program_along(start_api: StartApi, launch: Launch) -> None:
    api = start_api("python -c 'import time; time.sleep(1000)' & echo ready; sleep 1000")
    agent = launch(api)
    ready(api)
    programs = agent.descendants
    assert len(programs) >= 3
    agent.kill()
    psutil.wait_procs(programs, timeout=300)
    assert all(ended(program.pid) for program in programs)


def test_a_killed_watchdog_does_no_harm(start_api: StartApi, launch: Launch, tmp_path: Path) -> None:
    go = tmp_path / "go"
    api = start_api(f"echo ready; until [ -e {go} ]; do sleep 0.05; done; echo end")
    agent = launch(api)
    ready(api)
    [watchdog] = [process for process in agent.descendants if words(process)[-2:] == ["-m", "weft_trainer"]]
    watchdog.kill()
    go.touch()
    assert agent.wait() == 0
    assert api.learners[0].lines[-1] == "end"


def test_one_dead_slot_ends_the_learner(start_api: StartApi, launch: Launch) -> None:
    command = "echo started $LOCAL_RANK; if [ $LOCAL_RANK = 1 ]; then exit 5; fi; sleep 1000"
    api = start_api(command, launcher="torchrun", gpus=2)
    assert launch(api).wait() == 5
    learner = api.learners[0]
    assert learner.exit is not None
    assert learner.exit["reason"] == "exit code 5"
    assert "[1] started 1" in learner.lines
