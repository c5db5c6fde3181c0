"""The progress that heartbeats report, and the stacks that their answers ask for; with real agents."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from tests.trainer.agents import Launch
from tests.trainer.api_double import ApiDouble
from tests.trainer.conftest import StartApi

from weft_trainer.program import looks, stacks
from weft_trainer.service.vitals import Vitals

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
    api.wait_for(lambda: "begins" in api.learners[0].lines and bool(idle(api)) and idle(api)[-1] > 1.5)
    before = len(idle(api))
    assert not any(beat["wrote"] for beat in api.learners[0].heartbeats if "wrote" in beat)

    def ask(token: str, answers: int) -> None:
        api.stop = {"stop": False, "grace_seconds": None, "dump": token}
        api.wait_for(lambda: len(said(api, "wait_for_a_peer (")) == answers)
        beats = len(api.learners[0].heartbeats)
        api.wait_for(lambda: len(api.learners[0].heartbeats) > beats + 3)
        assert len(said(api, "wait_for_a_peer (")) == answers, api.learners[0].lines

    ask("first", 1)
    ask("second", 2)
    assert said(api, "Thread")
    api.wait_for(lambda: len(api.learners[0].stacks) == 2)
    [answer, again] = api.learners[0].stacks
    assert (answer["request"], again["request"]) == ("first", "second")
    functions = [
        (frame["function"], frame["own"])
        for process in answer["report"]["processes"]
        for thread in process.get("threads", [])
        for frame in thread["frames"]
    ]
    assert ("wait_for_a_peer", True) in functions
    assert min(idle(api)[before:]) > 1.5, "neither what the agent itself logs nor py-spy's work is a sign of life"
    agent.terminate()
    assert agent.wait() == 143


def test_what_reading_the_stacks_uses_is_no_sign_of_life() -> None:
    read = threading.Event()

    def dump(request: str) -> None:
        read.wait(60)

    vitals = Vitals(lambda: False, dump)
    vitals.begin()
    time.sleep(0.01)
    vitals.read({}, 0)
    vitals.asked("now")

    def quiet(at: float | None = None) -> tuple[float, float]:
        beat = vitals.read({}, 90, wrote=True, at=at)
        return beat["idle_seconds"], beat["still_seconds"]

    during = [quiet() for _ in range(2)]
    assert min(during[0]) > 0
    assert during == sorted(during)
    began = time.monotonic()
    time.sleep(0.01)
    read.set()
    while vitals.dumping:
        time.sleep(0.01)
    assert quiet(began) >= during[1], "the stacks came while the usage was read"
    assert quiet(began) >= during[1], "a heartbeat soon after the last, without new readings"
    last = time.monotonic()
    assert quiet(last) >= during[1], "the last of it"
    assert quiet(last) >= during[1]
    time.sleep(0.01)
    assert quiet() < during[1]


def test_a_program_that_computes_is_not_idle_while_its_stacks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it uses itself is unknown meanwhile, and several looks take longer than a short limit."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    read = threading.Event()

    def look(request: str) -> None:
        read.wait(60)

    vitals = Vitals(lambda: False, lambda request: None, look=look)

    def idle_after(seconds: float, demand: float) -> float:
        now[0] += seconds
        return float(vitals.read({}, demand)["idle_seconds"])

    vitals.begin()
    assert idle_after(5, 90) == 0
    vitals.asked(None, "look")
    assert idle_after(8, 90) == idle_after(8, 90) == 0
    read.set()
    while vitals.dumping:
        time.sleep(0.01)
    assert (idle_after(3, 90), idle_after(3, 0)) == (0, 3)


def test_a_step_is_a_line_a_metric_or_bytes_on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    vitals = Vitals(lambda: False, lambda request: None)
    vitals.begin()
    found = []
    for seconds, stepped, wrote in ((40, True, False), (7, False, True), (3, True, False), (30, False, False)):
        now[0] += seconds
        if stepped:
            vitals.step()
        beat = vitals.read({}, 90, wrote)
        found.append((beat["still_seconds"], beat["pause_seconds"]))
    assert found == [(0, 0), (0, 7), (0, 7), (30, 7)], "what comes before the first step is no pause; work is no step"


def test_a_program_that_shows_steps_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow save, for example, which needs no processor."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    vitals = Vitals(lambda: False, lambda request: None)
    vitals.begin()
    now[0] += 40
    assert vitals.read({}, 5)["idle_seconds"] == 40
    assert vitals.read({}, 5, wrote=True)["idle_seconds"] == 0
    now[0] += 40
    vitals.step()
    assert vitals.read({}, 5)["idle_seconds"] == 0


def test_looks_tell_what_stands_still_from_what_moves(tmp_path: Path) -> None:
    """Two processes that a test steers by their input: a step between two looks, and none."""
    code = "import sys\nprint(flush=True)\nfor line in sys.stdin:\n    pass\nfor line in sys.stdin:\n    pass\n"
    code = code.replace("for line in sys.stdin:\n    pass\n", "sys.stdin.readline()\n")
    ours = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in ours:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        while psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING:
            time.sleep(0.01)

    def wait(seconds: float) -> None:
        """The second one goes on to its next line of code."""
        before = stacks.take((), tmp_path, tmp_path).report["processes"]
        assert ours[1].stdin is not None
        if not stepped:
            stepped.append(True)
            ours[1].stdin.write("\n")
            ours[1].stdin.flush()
            while stacks.take((), tmp_path, tmp_path).report["processes"] == before:
                time.sleep(0.05)

    stepped: list[bool] = []
    report = looks.look((), tmp_path, tmp_path, wait)
    for process in ours:
        process.communicate("\n")
    seen = {process["pid"]: process for process in report["processes"]}
    assert [seen[process.pid]["still"] for process in ours] == [True, False]
    assert seen[ours[0].pid]["cpu_percent"] < 50


def test_work_in_children_that_nobody_sees_is_work(start_api: StartApi, launch: Launch) -> None:
    api = start_api(BURN, heartbeat_seconds=1)
    agent = launch(api)
    # Without work, each beat would tell of more idle seconds than the one before.
    api.wait_for(lambda: len(idle(api)) >= 6 and any(after <= before for before, after in pairwise(idle(api)[4:])))
    agent.terminate()
    agent.wait()


def test_a_log_line_and_a_first_result_are_signs_of_life(start_api: StartApi, launch: Launch, tmp_path: Path) -> None:
    gates = [tmp_path / name for name in ("say", "write")]
    for gate in gates:
        os.mkfifo(gate)  # waiting at one uses no processor time, which would be a sign of life
    api = start_api(
        f"read x < {gates[0]}; echo x; read x < {gates[1]}; echo 1 > $RESULT_DIR/out; sleep 1000", heartbeat_seconds=0.2
    )
    agent = launch(api)
    for gate in gates:
        api.wait_for(lambda: bool(idle(api)) and idle(api)[-1] > 1)
        gate.write_text("go\n")
        api.wait_for(lambda: idle(api)[-1] < 1)
    assert api.learners[0].lines == ["x"]
    api.wait_for(lambda: bool(api.learners[0].heartbeats[-1]["wrote"]))
    agent.terminate()
    agent.wait()


def test_a_checkpoint_that_came_back_is_not_written_yet(start_api: StartApi, launch: Launch) -> None:
    command = "if [ $WEFT_ATTEMPT = 1 ]; then echo 1 > $CHECKPOINT_DIR/state; else sleep 1000; fi"
    first = start_api(command)
    assert launch(first).wait() == 0
    again = start_api(command, attempt=2, heartbeat_seconds=0.2)
    again.objects = first.objects
    agent = launch(again, folder="attempt-2")
    beats = again.learners[0].heartbeats
    again.wait_for(lambda: sum("wrote" in beat for beat in beats) > 3)
    agent.terminate()
    assert agent.wait() == 143
    assert {beat["wrote"] for beat in beats if "wrote" in beat} == {False}


def test_the_age_of_the_stored_checkpoint(start_api: StartApi, launch: Launch) -> None:
    every = {"every_seconds": 0.2, "keep": 2}
    api = start_api("echo 1 > $CHECKPOINT_DIR/state; sleep 1000", heartbeat_seconds=0.2, checkpoint=every)
    agent = launch(api)
    beats = api.learners[0].heartbeats

    def ages() -> list[float]:
        return [beat["saved_seconds"] for beat in beats if "saved_seconds" in beat]

    api.wait_for(lambda: len(ages()) > 3)
    assert ages() == sorted(ages()), "it counts from when the program wrote it, not from when it was stored"
    assert "saved_seconds" not in beats[0]
    agent.terminate()
    assert agent.wait() == 143


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    started.stdout.readline()
    while psutil.Process(started.pid).status() != psutil.STATUS_SLEEPING:  # in input()
        time.sleep(0.01)
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
    snapshot = stacks.take((), tmp_path, tmp_path)
    lines = snapshot.lines
    assert any(words in line for line in lines), lines
    [head] = [line for line in lines if f"process {child.pid} " in line]
    assert "sleeping" in head
    assert "1 thread" in head
    [process] = [entry for entry in snapshot.report["processes"] if entry["pid"] == child.pid]
    assert (process["state"], process.get("threads")) == ("sleeping", None)
