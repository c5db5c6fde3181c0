"""A cluster without workers grows for a gang, and shrinks again when it has gone (Ray's own autoscaler). It is also one
that requires no token."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.ray.cluster import RayCluster
from tests.workers.engines.ray.bench import Bench, until

from weft_core.engine import EngineUnreachable, LearnerState

_POOL = {"resources": {"CPU": 1, "memory": 1 << 30, "quick": 1}, "node_config": {}, "min_workers": 0, "max_workers": 2}
_SETTINGS: dict[str, Any] = {
    "token": None,
    "allow_without_token": True,
    "autoscaling": [{"max": 2, "cpus": 1, "memory": 1 << 30, "extra": {"quick": 1}}],
}


@pytest.fixture(scope="module")
def growing() -> Iterator[Bench]:
    with RayCluster(cpus=0, autoscaling={"small": _POOL}, token=False) as cluster:
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


def test_a_ray_that_asks_for_no_token_is_refused_unless_that_is_allowed(growing: Bench) -> None:
    """Where it is allowed, a node comes for a lone learner."""
    run, there = growing.run("echo ready", cpus=1, extra={"quick": 1}), set(growing.cluster.jobs())
    careful = growing.new_engine(allow_without_token=False)
    for ask in (
        careful.observe,
        careful.capacity,
        lambda: run.launch(careful),
        lambda: careful.stop(run.name, timedelta(0)),
        growing.new_engine(allow_without_token=False, token="any").observe,
    ):
        with pytest.raises(EngineUnreachable, match=r"answers without a token.*allow_without_token"):
            ask()
    assert set(growing.cluster.jobs()) <= there
    [learner] = run.launch().ended().values()
    assert learner.exit_code == 0
    assert learner.node != "head"
    run.stop()
    run.forgotten()
