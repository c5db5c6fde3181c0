"""A cluster without workers grows for a gang, and shrinks again when it has gone (Ray's own autoscaler)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.ray.cluster import RayCluster
from tests.workers.engines.ray.bench import Bench, until

from weft_core.engine import LearnerState

_POOL = {"resources": {"CPU": 1, "memory": 1 << 30, "quick": 1}, "node_config": {}, "min_workers": 0, "max_workers": 2}
_SETTINGS = {"autoscaling": [{"max": 2, "cpus": 1, "memory": 1 << 30, "extra": {"quick": 1}}]}


@pytest.fixture(scope="module")
def growing() -> Iterator[Bench]:
    with RayCluster(cpus=0, autoscaling={"small": _POOL}) as cluster:
        bench = Bench(cluster, **_SETTINGS)
        yield bench
        bench.close()


def test_nodes_come_for_a_gang_and_go_after_it(growing: Bench) -> None:
    assert [(node.name, node.potential) for node in growing.engine.capacity().nodes] == [
        ("head", False),
        ("ray-0-0", True),
        ("ray-0-1", True),
    ]
    run = growing.run(learners=2, cpus=1, extra={"quick": 1}).launch()
    seen = run.wait(lambda seen: "autoscaler" in seen.learners[0].reason)
    assert {learner.state for learner in seen.learners.values()} == {LearnerState.STARTING}
    run.started()
    assert len({learner.node for learner in run.learners().values()}) == 2
    assert [node.potential for node in growing.engine.capacity().nodes] == [False] * 3
    run.stop()
    run.forgotten()
    until(lambda: [node.potential for node in growing.engine.capacity().nodes] == [False, True, True])


def test_a_node_comes_for_a_lone_learner(growing: Bench) -> None:
    run = growing.run(cpus=1, extra={"quick": 1}).launch().started()
    assert run.learners()[0].node != "head"
    run.stop()
    run.forgotten()
