"""Quotas: no project ever holds more than it may, and its jobs show what they wait for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from tests.workers.fake_engine import FakeEngine
from tests.workers.test_admission import GIB, need, node
from tests.workers.test_elastic import close_round
from tests.workers.world import PROJECT, USER, World

from weft_core.engine import Capacity
from weft_core.ids import new_id
from weft_core.launch import Resources
from weft_core.lifecycle.states import LearnerPhase
from weft_core.store import jobs
from weft_core.store.models import Attempt, Job, Project
from weft_core.store.quotas import Quota, Usage, usage
from weft_core.store.scope import Scope
from weft_workers.admission import Plan, plan
from weft_workers.observing import Ages, ObservedEngine
from weft_workers.quotas import Allowance
from weft_workers.reconcile import step
from weft_workers.reconcile.admit import admit, due
from weft_workers.rooms import Request

ROOMY = Capacity((node(cpus=64, gpus=16),))


def planned(quota: Quota, *queue: tuple[str, int, Resources], used: Usage | None = None, queued: bool = False) -> Plan:
    """The plan for jobs (name, learners, of what each) of project vision on an engine with room for all."""
    capacity = replace(ROOMY, queue="kueue") if queued else ROOMY
    requests = [Request(name, learners, each, project="vision") for name, learners, each in queue]
    requests.append(Request("other", 1, need(), project="another"))
    decided = plan("e", capacity, [], requests, {"vision": [Allowance("vision", quota, used or Usage())]})
    assert "other" in decided.places, "nobody else is held back"
    return decided


def test_a_job_waits_for_what_its_project_has_too_little_of() -> None:
    full = Usage(cpus=8, gpus=4, memory=4 * GIB, jobs=2)
    why = "waiting for quota of project vision: "
    for quota, each, reason in (
        (Quota(gpus=4), need(gpus=1), "4 of 4 GPUs in use"),
        (Quota(cpus=8.5), need(cpus=1), "8 of 8.5 CPUs in use"),
        (Quota(memory=5 * GIB), need(memory=2 * GIB), "4 GiB of 5 GiB memory in use"),
        (Quota(jobs=2), need(), "2 of 2 jobs running"),
        (Quota(gpus=4), need(gpus=8), "asks 8 GPUs, it has 4"),
    ):
        for queued in (False, True):  # another queue's admission comes after the quota
            decided = planned(quota, ("a", 1, each), used=full, queued=queued)
            assert decided.waiting == {"a": why + reason}
            assert decided.held_back == {"a": "vision"}
    assert "a" in planned(Quota(gpus=4), ("a", 1, need(gpus=0)), used=full).places


def test_small_jobs_never_take_what_a_large_one_of_the_project_waits_for() -> None:
    queue = [("large", 2, need(gpus=2)), ("small", 1, need(gpus=1)), ("no-gpu", 1, need())]
    decided = planned(Quota(gpus=4), *queue, used=Usage(gpus=1, jobs=1))
    assert decided.waiting == {
        "large": "waiting for quota of project vision: 1 of 4 GPUs in use",
        "small": "queued behind a job that is waiting for quota of project vision",
    }
    assert "no-gpu" in decided.places
    never = planned(Quota(gpus=4), ("never", 1, need(gpus=5)), ("small", 1, need(gpus=1)))
    assert "small" in never.places, "what can never start keeps nothing"


def test_an_elastic_job_starts_with_what_its_quota_allows() -> None:
    request = Request("a", 4, need(gpus=1), least=2, project="vision")
    for used, learners in ((0, 3), (1, 2), (2, 0)):
        allowance = Allowance("vision", Quota(gpus=3), Usage(gpus=used))
        assert len(plan("e", ROOMY, [], [request], {"vision": [allowance]}).places.get("a", ())) == learners


@given(
    st.builds(Quota, *(st.none() | st.integers(0, 6) for _ in range(2)), st.none(), st.none() | st.integers(0, 3)),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(0, 2)), max_size=8),
)
def test_no_plan_exceeds_a_quota_and_everybody_gets_an_answer(quota: Quota, wanted: list[tuple[int, int, int]]) -> None:
    queue = [(f"job-{n}", learners, need(cpus, gpus)) for n, (learners, cpus, gpus) in enumerate(wanted)]
    decided = planned(quota, *queue)
    held = Usage()
    for name, learners, each in queue:
        assert (name in decided.places) != bool(decided.waiting.get(name))
        if name in decided.places:
            held = held.plus(each, learners)
    for limit, used in ((quota.cpus, held.cpus), (quota.gpus, held.gpus), (quota.jobs, held.jobs)):
        assert limit is None or used <= limit


# --- in the store ----------------------------------------------------------------------------------------------------


def limit(world: World, **quota: Any) -> None:
    with world.transaction() as session:
        session.get_one(Project, PROJECT).quota = quota


def test_a_quota_holds_back_and_lets_go(world: World) -> None:
    limit(world, gpus=2)
    first, second, third = (world.submit(resources={"gpus": gpus}) for gpus in (2, 1, 0))
    for job in (first, second, third):
        world.step(job)
    assert [world.job(job).state for job in (first, second, third)] == ["PENDING", "QUEUED", "PENDING"]
    assert world.job(second).reason == "waiting for quota of project lab: 2 of 2 GPUs in use"
    assert world.events(second, "waiting") == [world.job(second).reason]
    with world.transaction() as session:
        assert usage(session, [PROJECT]) == {PROJECT: Usage(cpus=2, gpus=2, memory=2 * GIB, jobs=2)}
    limit(world, gpus=3)
    world.step(second)
    assert world.job(second).state == "PENDING"


def test_a_running_elastic_job_grows_within_its_quota_only(world: World) -> None:
    limit(world, gpus=3)
    other = world.submit(resources={"gpus": 2})
    world.step(other)
    elastic = world.running(learners=2, resources={"gpus": 1}, elastic={"min": 1, "max": 2})
    assert len(world.learners(elastic)) == 1
    close_round(world, elastic, 1, 0)

    def later() -> None:
        world.pass_time(120)
        world.phase(elastic, LearnerPhase.PROCESSING)
        world.step(elastic, 2)

    later()
    assert len(world.learners(elastic)) == 1, "there is room, but no quota"
    limit(world, gpus=4)
    later()
    assert len(world.learners(elastic)) == 2


def test_two_engines_never_give_out_the_same_quota(world: World) -> None:
    second = FakeEngine()
    engines = {**world.context.engines, "second": ObservedEngine(second, "second", Ages(0, 0, 0))}
    context = replace(world.context, engines=engines)
    limit(world, jobs=3)
    ids = []
    for engine in ("local", "second") * 5:
        with world.transaction() as session:
            manifest = {
                "resources": {"cpus": 0.1, "gpus": 0, "memory": 1}, "framework": {"image": "python:3.11"},
                "elastic": None, "profile": None,
            }  # fmt: skip
            job = Job(
                id=new_id("job"), user_id=USER, manifest=manifest, name="job", engine=engine,
                priority=50, learners=1, retries=0,
            )  # fmt: skip
            ids.append(jobs.submit(Scope(session, PROJECT), job, []).id)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda job: step(context, job, linger=False), ids * 2))
    for name in engines:  # as a sweeper does: another pass may have been under way
        if due(context, name):
            admit(context, name)
    with world.transaction() as session:
        assert len(session.scalars(select(Attempt.id)).all()) == 3
    assert {world.job(job).reason for job in ids if world.job(job).state == "QUEUED"} <= {
        "waiting for quota of project lab: 3 of 3 jobs running",
        "waiting for quota of project lab: 3 of 3 jobs running; queued behind a job of the project",
    }
