"""Actors, nodes and heads that die under a run: the right outcome, with the reason, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.ray.cluster import ray_python
from tests.servers import free_port
from tests.trainer.agents import RUNTIME, ended
from tests.workers.engines.ray.bench import Bench, processes_with, until

from weft_core.engine import EngineUnreachable, LearnerState
from weft_workers.engines.ray.reading import Run, observe

# A daemon that has left the session, the group and the parent that it was started by.
ESCAPES = "(setsid bash -c 'sleep 6123 & exec sleep 6123' &) ; echo ready; sleep 600 & wait"


def _killed(pids: list[int]) -> bool:
    return all(ended(pid) for pid in pids)


def test_a_gang_that_is_lost_piece_by_piece(bench: Bench, tmp_path: Path) -> None:
    """An actor before its agent runs, an agent, an actor with all of its learner, and the driver."""
    held, go = tmp_path / "python", tmp_path / "go"
    held.write_text(f'#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.1; done\nexec {sys.executable} "$@"\n')
    held.chmod(0o755)
    run = bench.run(ESCAPES, learners=3).launch(bench.new_engine(environments={"*": str(held)}))
    until(lambda: len(bench.cluster.actors(run.name)) == 3, run.describe)
    os.kill(bench.cluster.actors(run.name)[0]["pid"], signal.SIGKILL)
    go.touch()
    run.started()
    assert run.api.calls["start"] == 3  # that actor was started again
    before = run.processes()

    [agent] = [pid for pid in processes_with(run.api.url, "WEFT_RANK=1", "weft_trainer") if _is_agent(pid)]
    os.kill(agent, signal.SIGKILL)
    seen = run.wait(lambda seen: seen.learners[1].state is LearnerState.EXITED)
    assert seen.learners[1].exit_code == -9
    # The machine counts processes that it kills for memory: another one may be killed meanwhile.
    assert seen.learners[1].reason.removesuffix(", probably out of memory") == "killed by signal 9 (SIGKILL)"
    assert not seen.learners[1].interrupted
    assert seen.learners[0].state is seen.learners[2].state is LearnerState.RUNNING
    until(lambda: not processes_with(run.api.url, "WEFT_RANK=1"), run.describe)

    os.kill(bench.cluster.actors(run.name)[0]["pid"], signal.SIGKILL)
    seen = run.wait(lambda seen: seen.learners[0].state is LearnerState.EXITED)
    assert seen.learners[0].reason.startswith("its Ray actor was killed: ")
    assert seen.learners[2].state is LearnerState.RUNNING
    until(lambda: not processes_with(run.api.url, "WEFT_RANK=0"), run.describe)

    [driver] = [pid for pid in processes_with("weft_trainer.ray_gang", run.name) if _is_driver(pid)]
    os.kill(driver, signal.SIGKILL)
    learner = run.ended()[2]
    assert learner.interrupted
    assert learner.reason.startswith("its driver on the Ray cluster was lost: ")
    until(lambda: not run.processes(), run.describe)
    run.stop()
    run.forgotten()
    assert _killed(before)


def test_the_actor_of_a_lone_learner_takes_it_along(bench: Bench) -> None:
    """Ray's own, whose job is the learner."""
    run = bench.run(ESCAPES).launch().started()
    assert not bench.cluster.actors(run.name)
    os.kill(bench.cluster.supervisors(run.name)[run.name]["pid"], signal.SIGKILL)
    [learner] = run.ended().values()
    assert learner.interrupted
    assert learner.reason.startswith("its driver on the Ray cluster was lost: ")
    until(lambda: not run.processes(), run.describe)
    run.stop()
    run.forgotten()


def test_a_node_whose_raylet_is_killed_interrupts_its_learners_and_leaves_none(bench: Bench) -> None:
    node = bench.cluster.add_node(cpus=1, resources={"far": 1})
    try:
        run = bench.run(ESCAPES, extra={"far": 1}).launch().started()
        assert run.learners()[0].node == node.name
        os.kill(node.raylet(), signal.SIGKILL)
        [learner] = run.ended().values()
        assert (learner.interrupted, learner.reason) == (True, f"its node {node.name} was lost")
        until(lambda: not run.processes(), run.describe)
        run.stop()
        run.forgotten()
    finally:
        bench.cluster.remove_node(node)


def test_a_head_that_is_lost_and_comes_back(bench: Bench) -> None:
    """A new one, at the old addresses."""
    node = bench.cluster.add_node(cpus=1, resources={"far": 1})
    try:
        run = bench.run(ESCAPES, extra={"far": 1}).launch().started()
        bench.cluster.kill_head()
        assert "Ray at" in _refusal(bench)
        until(lambda: not run.processes(), run.describe)  # the learner was on the node that is still there
        bench.cluster.restart_head()
        until(lambda: run.name not in bench.engine.observe())
        run.stop()
        again = bench.run().launch().started()
        again.stop()
        again.forgotten()
    finally:
        node.kill()
        bench.cluster.nodes.remove(node)


@pytest.mark.parametrize("driver", ["ray_gang", "ray_gang.alone"])
def test_a_driver_that_the_cluster_does_not_answer_is_interrupted(driver: str) -> None:
    """A head under load may refuse a connection: either the driver says so, or Ray's core ends it."""
    short = {f"RAY_{name}_timeout_s": "1" for name in ("gcs_rpc_server_connect", "gcs_rpc_server_reconnect")}
    env = os.environ | short | {"RAY_ADDRESS": f"127.0.0.1:{free_port()}", "PYTHONPATH": str(RUNTIME)}
    argv = [str(ray_python()), "-m", f"weft_trainer.{driver}", "weft-job-a-1", "notes"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    job = {
        "submission_id": "weft-job-a-1",
        "metadata": {"learners": "1"},
        "status": "FAILED",
        "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR",
        "driver_exit_code": done.returncode,
        "message": done.stderr,
    }
    seen = observe(Run(job))
    assert not seen.failed
    assert seen.learners[0].interrupted
    assert seen.learners[0].reason.startswith("its driver on the Ray cluster was lost: ")
    unlike = observe(Run({**job, "driver_exit_code": 1, "message": "ModuleNotFoundError: No module named 'ray'"}))
    assert unlike.failed == "its driver could not start on the Ray cluster: ModuleNotFoundError: No module named 'ray'"


def _refusal(bench: Bench) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            bench.engine.observe()
        except EngineUnreachable as error:
            return str(error)
    raise AssertionError("a dead Ray still answers")


def _is_agent(pid: int) -> bool:
    """An agent's watchdog looks the same, but is the agent's child."""
    parent = psutil.Process(pid).parent()
    return bool(parent and parent.cmdline()[-1].endswith("guard.py"))


def _is_driver(pid: int) -> bool:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().split(b"\0")[1:3] == [b"-m", b"weft_trainer.ray_gang"]
