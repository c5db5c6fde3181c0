"""Which node is blamed for what, and when a node that is blamed gets no learners."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import func, text
from tests.workers.fake_engine import GIB
from tests.workers.world import PROJECT, World

from weft_core.engine import Node
from weft_core.engine_settings import LocalSettings
from weft_core.lifecycle.actions import Settle
from weft_core.lifecycle.blame import blamed_by_end, blamed_by_hang
from weft_core.lifecycle.states import Desired, JobState, Outcome
from weft_core.lifecycle.view import JobView, LearnerView, View
from weft_core.settings import NodeSettings, TimingSettings
from weft_core.store.blames import blamed_nodes, forgive, nodes_to_avoid
from weft_core.store.models import EngineStatus, NodeBlame, Project


def gang(*nodes: str | None) -> View:
    return View(
        now=datetime(2026, 1, 31, tzinfo=UTC),
        timings=TimingSettings(),
        job=JobView("job-1", "prj-1", "local", JobState.PROCESSING, Desired.RUNNING, len(nodes), retries=0),
        learners=tuple(LearnerView(rank, node=node) for rank, node in enumerate(nodes)),
    )


def end(**changes: Any) -> Settle:
    return replace(Settle(Outcome.LOST, "", 0, error_code="S104", rank=1), **changes)


def test_a_node_is_blamed_for_a_learner_that_vanished_and_not_for_a_program() -> None:
    assert blamed_by_end(gang("a", "b"), end()) == "b"
    assert blamed_by_end(gang("a", None), end()) is None
    assert blamed_by_end(gang("a", "b"), end(rank=None)) is None
    assert blamed_by_end(gang("a", "b"), end(outcome=Outcome.FAILED, error_code="C201", exit_code=1)) is None


@pytest.mark.parametrize(
    ("nodes", "blamed", "waiting", "node"),
    [
        (("a", "b", "c"), [1], [0, 2], "b"),
        (("a", "b", "b"), [1, 2], [0], "b"),
        (("a", "b", "b"), [1], [0, 2], None),  # a rank on the same node waits: it is not the node
        (("a", "a", "a"), [1], [0, 2], None),
        (("a", "b", "c"), [1, 2], [0], None),
        (("a", None, "c"), [1], [0, 2], None),
        (("a", "b", "c"), [], [0, 1, 2], None),
    ],
)
def test_a_node_is_blamed_for_a_hang_if_ranks_elsewhere_wait_for_those_on_it(
    nodes: tuple[str | None, ...], blamed: list[int], waiting: list[int], node: str | None
) -> None:
    ranks = [{"rank": rank, "learner": rank + 1} for rank in range(3)]
    verdict = {"blamed": blamed, "waiting": waiting, "ranks": ranks}
    assert blamed_by_hang(gang(*nodes), verdict) == node
    assert blamed_by_hang(gang(*nodes), {}) is None


# --- the ledger ----------------------------------------------------------------------------------------------------

NODES = [{"name": f"node-{n}"} for n in range(1, 5)]


def note(world: World, node: str, job: str, project: str = PROJECT, days: float = 0) -> None:
    at = func.now() - text(f"interval '{days} days'")
    row = NodeBlame(engine="local", node=node, job=job, project=project, attempt=1, reason="vanished", created_at=at)
    with world.transaction() as session:
        session.add(row)


def avoided(world: World) -> list[str]:
    with world.transaction() as session:
        return sorted(name for name, found in blamed_nodes(session, "local", NodeSettings()).items() if found.excluded)


@pytest.fixture
def cluster(world: World) -> World:
    """Two projects have used an engine of four nodes."""
    with world.transaction() as session:
        session.merge(Project(id="prj-2", name="office"))
        session.merge(EngineStatus(name="local", type="kubernetes", capacity={"nodes": NODES}))
    world.running()
    world.running(project="prj-2")
    return world


def test_a_node_is_excluded_when_several_jobs_of_several_projects_blame_it(cluster: World) -> None:
    for n in range(9):
        note(cluster, "node-1", f"job-{n}")
    assert avoided(cluster) == [], "one project alone can make its learners vanish anywhere, at will"
    note(cluster, "node-1", "job-a", "prj-2")
    assert avoided(cluster) == ["node-1"]
    for job in ("job-1", "job-2"):
        note(cluster, "node-2", job)
    assert avoided(cluster) == ["node-1"], "too few jobs"
    note(cluster, "node-2", "job-b", "prj-2", days=8)
    assert avoided(cluster) == ["node-1"], "too long ago"
    with cluster.transaction() as session:
        assert forgive(session, "local", "node-1") == 10
        assert forgive(session, "local", "node-1") == 0
    assert avoided(cluster) == []


def test_half_of_the_nodes_stay_whatever_jobs_say(cluster: World) -> None:
    for n, node in enumerate(("node-1", "node-2", "node-3", "node-4")):
        for job in range(3 + n):
            note(cluster, node, f"job-{job}", PROJECT if job else "prj-2")
    assert avoided(cluster) == ["node-3", "node-4"], "those with the most blames"


def test_the_only_project_of_an_engine_decides_for_itself(world: World) -> None:
    with world.transaction() as session:
        session.merge(EngineStatus(name="local", type="kubernetes", capacity={"nodes": NODES}))
    world.running()
    for n in range(3):
        note(world, "node-1", f"job-{n}")
    assert avoided(world) == ["node-1"]


def test_no_learner_is_placed_on_a_node_that_is_excluded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.engine.nodes = tuple(Node(f"node-{n}", cpus=4, gpus=0, memory=16 * GIB) for n in (1, 2))
    with world.transaction() as session:
        session.merge(EngineStatus(name="local", type="kubernetes", capacity={"nodes": NODES[:2]}))
    world.running()
    for n in range(3):
        note(world, "node-1", f"job-{n}")
    with world.transaction() as session:
        assert nodes_to_avoid(session, world.context.settings, "local") == (), "this type of engine can't avoid nodes"
    monkeypatch.setattr(LocalSettings, "avoids_nodes", True)
    jobs = [world.submit() for _ in range(6)]
    for job in jobs:
        world.step(job)
    placed = [attempt.resources["nodes"] for job in jobs for attempt in world.attempts(job)]
    assert placed == [["node-2"]] * len(placed)
    assert 0 < len(placed) < len(jobs), "the others wait"
    assert all(spec.placement.avoid == ("node-1",) for spec in world.engine.launches[1:])
