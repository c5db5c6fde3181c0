"""What heartbeats tell of a program's progress, and the stacks that their answers ask for; with real agents."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.trainer.agents import Launch
from tests.trainer.api_double import ApiDouble
from tests.trainer.conftest import StartApi

from weft_trainer import stacks

DEADLOCK = """python -c '
import socket
def wait_for_a_peer():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()
print("begins", flush=True)
wait_for_a_peer()'"""
BURN = "while true; do python -S -c 'sum(range(3_000_000))'; sleep 0.05; done"


def idle(api: ApiDouble, rank: int = 0) -> list[float]:
    return [beat["idle_seconds"] for beat in api.learners[rank].heartbeats if "idle_seconds" in beat]


def said(api: ApiDouble, words: str) -> list[str]:
    return [line for line in api.learners[0].lines if line.startswith("weft: ") and words in line]


def test_a_deadlock_is_idle_and_its_stack_is_shown_once_for_each_request(start_api: StartApi, launch: Launch) -> None:
    api = start_api(DEADLOCK, heartbeat_seconds=0.2)
    agent = launch(api)
    api.wait_for(lambda: bool(idle(api)) and idle(api)[-1] > 1.5)
    assert not any(beat["wrote"] for beat in api.learners[0].heartbeats if "wrote" in beat)
    for number, token in enumerate(("first", "second"), 1):
        api.stop = {"stop": False, "grace_seconds": None, "dump": token}
        api.wait_for(lambda n=number: len(said(api, "wait_for_a_peer (")) == n)
        beats = len(api.learners[0].heartbeats)
        api.wait_for(lambda n=beats: len(api.learners[0].heartbeats) > n + 3)
        assert len(said(api, "wait_for_a_peer (")) == number, api.learners[0].lines
    assert said(api, "Thread")
    assert idle(api)[-1] > idle(api)[0], "what the agent itself logs is no sign of life"
    agent.terminate()
    assert agent.wait() == 143


def test_work_in_children_that_nobody_sees_is_work(start_api: StartApi, launch: Launch) -> None:
    api = start_api(BURN, heartbeat_seconds=1)
    agent = launch(api)
    api.wait_for(lambda: len(idle(api)) >= 5)
    assert max(idle(api)[1:]) < 1.5, idle(api)
    agent.terminate()
    agent.wait()


def test_a_log_line_and_a_first_result_are_signs_of_life(start_api: StartApi, launch: Launch) -> None:
    api = start_api("sleep 1; echo x; sleep 1.5; echo 1 > $RESULT_DIR/out; sleep 1000", heartbeat_seconds=0.2)
    agent = launch(api)
    api.wait_for(lambda: any(beat.get("wrote") for beat in api.learners[0].heartbeats))
    signs = [later < earlier for earlier, later in zip(idle(api), idle(api)[1:], strict=False)]
    assert sum(signs) == 2, idle(api)
    agent.terminate()
    agent.wait()


def test_a_checkpoint_that_came_back_is_not_written_yet(start_api: StartApi, launch: Launch) -> None:
    command = "if [ $WEFT_ATTEMPT = 1 ]; then echo 1 > $CHECKPOINT_DIR/state; fi; sleep 2"
    first = start_api(command)
    assert launch(first).wait() == 0
    again = start_api(command, attempt=2, heartbeat_seconds=0.2)
    again.objects = first.objects
    assert launch(again, folder="attempt-2").wait() == 0
    assert {beat["wrote"] for beat in again.learners[0].heartbeats if "wrote" in beat} == {False}


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    started.stdout.readline()
    time.sleep(0.1)
    yield started
    started.communicate("\n")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("echo 'Error: Permission denied (os error 13)' >&2; exit 1", "ptrace is refused here"),
        ("echo 'Error: Failed to find a python version' >&2; exit 1", "its stack can't be read: Failed to find"),
        (None, "there is no py-spy in this environment"),
    ],
)
def test_where_py_spy_can_not_read_proc_has_to_do(
    child: subprocess.Popen[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str | None,
    words: str,
) -> None:
    spy = tmp_path / "py-spy"
    spy.write_text(f"#!/bin/sh\n{answer}\n")
    spy.chmod(0o755)
    monkeypatch.setattr(stacks, "find_py_spy", lambda: str(spy) if answer else None)
    lines = list(stacks.dump(ignore=()))
    assert any(words in line for line in lines), lines
    [head] = [line for line in lines if f"process {child.pid} " in line]
    assert "sleeping" in head
    assert "1 thread" in head
