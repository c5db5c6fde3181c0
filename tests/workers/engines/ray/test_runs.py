"""Runs from their launch to their end, on a real Ray cluster with real agents."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from tests.ray.cluster import RayCluster
from tests.workers.engines.ray.bench import Bench, Run, processes_with, until

from weft_core.engine import EngineUnreachable, LearnerState
from weft_workers.engines.ray import RayEngine


@pytest.fixture(scope="module")
def _shared(ray_cluster: RayCluster) -> Iterator[Bench]:
    made = Bench(ray_cluster)
    yield made
    made.close()


@pytest.fixture
def standing(_shared: Bench) -> Run:
    """A run of one learner that runs."""
    for run in _shared.runs[-1:]:
        if (seen := run.observe()) and not seen.gone:
            return run
    command = "trap 'echo saved; exit 0' TERM; echo ready; sleep 600 & wait"
    return _shared.run(command, cpus=1, extra={"few": 1}).launch().started()


def test_a_gang_runs_and_each_learner_ends_in_its_own_way(bench: Bench, tmp_path: Path) -> None:
    """In the environment of its image; the first fails, and the other goes on."""
    go = tmp_path / "go"
    command = f"echo ready; env; [ $LEARNER_ID = 1 ] && exit 3; until [ -e {go} ]; do sleep 0.1; done"
    engine = bench.new_engine(environments={"python:3.11": sys.executable, "*": "/nowhere/bin/python"})
    run = bench.run(command, learners=2).launch(engine)
    first = run.wait(lambda seen: seen.learners)
    assert [learner.state for learner in first.learners.values()] == [LearnerState.STARTING] * 2
    assert all(learner.reason for learner in first.learners.values())
    seen = run.wait(lambda seen: seen.learners[0].state is LearnerState.EXITED)
    assert seen.learners[0].exit_code == 3
    assert "3" in seen.learners[0].reason
    assert not seen.learners[0].interrupted
    seen = run.wait(lambda seen: seen.learners[1].state is LearnerState.RUNNING)
    assert {learner.node for learner in seen.learners.values()} == {"head"}
    go.touch()
    last = run.ended()[1]
    assert (last.exit_code, last.reason) == (0, "")
    for rank in (0, 1):
        lines = run.api.learners[rank].lines
        assert run.api.learners[rank].phases[-1] == "EXITED"
        assert f"LEARNER_ID={rank + 1}" in lines
        assert f"WEFT_IMAGE_PYTHON={sys.executable}" in lines
        assert not [line for line in lines if bench.cluster.token in line]
        assert [line for line in lines if line.startswith("RAY_")] == ["RAY_ADDRESS=local"]
        assert not [line for line in lines if run.spec.token in line]
    assert not run.api.problems
    run.stop()
    run.forgotten()
    work = Path(f"/tmp/weft-{os.getuid()}/runs")
    until(lambda: not list(work.glob(f"{run.name}*")), seconds=30)


def test_a_foreign_run_of_the_same_name_is_left_alone(bench: Bench, standing: Run) -> None:
    with pytest.raises(EngineUnreachable, match=f"{standing.name} is there, of another engine"):
        bench.new_engine("second").launch(standing.spec)
    theirs = bench.new_engine(installation="inst-other")
    assert standing.name not in theirs.observe()
    theirs.stop(standing.name, timedelta(0))
    time.sleep(1)
    assert standing.learners()[0].state is LearnerState.RUNNING


def test_the_token_is_in_no_listing_and_on_no_command_line(bench: Bench, standing: Run) -> None:
    cluster, token = bench.cluster, standing.spec.token
    listings = [cluster.jobs(), *(cluster.get(f"/api/v0/{what}?detail=1") for what in ("actors", "tasks", "workers"))]
    assert token not in json.dumps(listings)
    running = processes_with(standing.name)
    assert running
    assert not any(token.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in running)
    logs = [path for path in cluster.folder.rglob("logs/**/*") if path.is_file()]
    assert len(logs) > 5
    assert not [path for path in logs if token.encode() in path.read_bytes()]


def test_what_does_not_fit_waits_and_runs_when_a_node_joins(bench: Bench) -> None:
    run = bench.run(learners=2, cpus=1, extra={"blue": 1}).launch()
    reason = "waiting for room in the Ray cluster: 2 × {CPU: 1, memory: 64 MiB, blue: 1}; its autoscaler is asked"
    seen = run.wait(lambda seen: seen.learners[0].reason.startswith("waiting"))
    assert {learner.reason for learner in seen.learners.values()} == {reason}
    assert {learner.state for learner in seen.learners.values()} == {LearnerState.STARTING}
    node = bench.cluster.add_node(cpus=2, resources={"blue": 2})
    try:
        run.started()
        assert {learner.node for learner in run.learners().values()} == {node.name}
        assert {counted.name for counted in bench.engine.capacity().nodes} == {"head", node.name}
        run.stop()
        run.forgotten()
    finally:
        bench.cluster.remove_node(node)
    until(lambda: {counted.name for counted in bench.engine.capacity().nodes} == {"head"})


def test_one_that_fits_nowhere_is_taken_back(bench: Bench) -> None:
    """Its Ray job has not begun, and Ray itself stops only those that have."""
    run = bench.run(cpus=64).launch()
    seen = run.wait(lambda seen: seen.learners[0].reason)
    assert seen.learners[0].state is LearnerState.STARTING
    assert seen.learners[0].reason == (
        "Ray is placing it: 1 × {CPU: 64, memory: 64 MiB}; where there is no room, its autoscaler is asked"
    )
    run.stop(600)
    run.forgotten()

    def is_clean() -> bool:
        bench.engine.observe()  # which removes the job that has taken it back, too, once that has ended
        return not [name for name in bench.cluster.jobs() if run.name in name]

    until(is_clean, run.describe)
    until(lambda: not bench.cluster.supervisors(run.name), run.describe)
    assert not run.api.calls


def test_an_image_whose_environment_does_not_run(bench: Bench) -> None:
    run = bench.run(image="pytorch:9.9").launch(bench.new_engine(environments={"*": "/nowhere/bin/python"}))
    seen = run.wait(lambda seen: seen.failed)
    assert seen.failed == (
        "image pytorch:9.9: the Python of its environment, /nowhere/bin/python, does not run: No such file or directory"
    )
    assert seen.failed_code == "S103"
    run.stop()
    run.forgotten()


def test_capacity_tells_ours_from_others(bench: Bench, standing: Run) -> None:
    capacity = bench.engine.capacity()
    assert capacity.exposed, "so a second project needs --allow-untrusted"
    [node] = capacity.nodes
    assert (node.name, node.cpus, node.gpus, node.potential) == ("head", 4, 0, False)
    assert (node.memory, node.extra) == (16 << 30, {"few": 1, "slot": 1})
    theirs = bench.new_engine(installation="inst-other")

    def busy(engine: RayEngine) -> tuple[float, int, Mapping[str, float]]:
        [node] = engine.capacity().nodes
        return node.busy.cpus, node.busy.memory, node.busy.extra

    # Ray takes its time to tell what has come, and what of an earlier run has gone.
    until(lambda: busy(theirs) == (1, 64 << 20, {"few": 1}), lambda: busy(theirs))
    until(lambda: busy(bench.engine) == (0, 0, {}), lambda: busy(bench.engine))
    script = "import ray, time; ray.init(); ray.get(ray.remote(num_cpus=1.5)(lambda: time.sleep(600)).remote())"
    other = bench.cluster.run_driver(script)
    try:
        until(lambda: busy(bench.engine)[::2] == (1.5, {}), lambda: busy(bench.engine))
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()


def test_a_driver_that_is_stopped_by_hand_interrupts_its_run(bench: Bench, standing: Run) -> None:
    bench.cluster.get(f"/api/jobs/{standing.name}/stop", method="POST")
    [learner] = standing.ended().values()
    assert learner.interrupted
    assert learner.reason == "its job was stopped on the Ray cluster"
    assert standing.api.learners[0].lines[-1] == "saved"
    standing.stop()
    standing.forgotten()
