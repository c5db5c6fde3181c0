"""Budgets of GPU-hours: what a job reserves at its admission and gives back at its end, and no budget overspent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import select
from tests.workers.fake_engine import FakeEngine
from tests.workers.test_admission import node
from tests.workers.world import PROJECT, World

from weft_core.ids import new_id
from weft_core.lifecycle.states import LearnerPhase
from weft_core.store.budgets import Need, Standing, standings
from weft_core.store.models import Budget, Charge
from weft_core.store.scope import Scope
from weft_workers.observing import Ages, ObservedEngine
from weft_workers.purses import Purse
from weft_workers.reconcile.admit import admit

GRACE, HOUR = 120.0, 3600.0


@pytest.fixture
def roomy(world: World) -> World:
    world.engine.nodes = (node(cpus=640, gpus=640),)
    return world


def budget(world: World, gpu_hours: float) -> str:
    with world.transaction() as session:
        made = new_id("bud")
        Scope(session, PROJECT).add(Budget(id=made, name="agent", gpu_seconds=gpu_hours * HOUR))
    return made


def standing(world: World, budget_id: str) -> Standing:
    with world.transaction() as session:
        return standings(session, [budget_id])[budget_id]


def submit(world: World, budget_id: str, gpus: int = 1, seconds: float = HOUR) -> str:
    return world.submit(budget_id=budget_id, resources={"gpus": gpus}, max_runtime=seconds)


def test_a_job_reserves_its_time_limit_and_gives_back_what_it_has_not_used(roomy: World) -> None:
    agents = budget(roomy, 5)
    job = submit(roomy, agents, gpus=2)
    roomy.step(job)
    assert standing(roomy, agents).reserved == 2 * (HOUR + GRACE)
    roomy.phase(job, LearnerPhase.PROCESSING)
    roomy.step(job)
    roomy.pass_time(600)
    roomy.exit(job)
    roomy.step(job, times=3)
    assert roomy.job(job).state == "COMPLETED"
    now = standing(roomy, agents)
    assert now.reserved == 0
    assert 2 * 600 <= now.used < 2 * (HOUR + GRACE)
    roomy.delete(job)
    roomy.step(job, times=3)
    assert roomy.find(job) is None
    assert standing(roomy, agents).used == now.used, "a deletion gives nothing back"


def test_a_job_waits_while_others_may_give_back_and_the_last_one_gets_the_rest(roomy: World) -> None:
    agents = budget(roomy, 1.5)
    first, second, other = submit(roomy, agents), submit(roomy, agents), roomy.submit(resources={"gpus": 4})
    roomy.step(first)
    roomy.step(other)
    waiting = roomy.job(second)
    assert waiting.state == "QUEUED"
    assert waiting.reason == (
        "waiting for the budget of token agent: 1.033 of 1.5 GPU-hours are used or reserved, asks 1.033"
    )
    assert roomy.job(other).state == "PENDING", "who has no budget is not held back"
    roomy.phase(first, LearnerPhase.PROCESSING)
    roomy.step(first)
    roomy.pass_time(HOUR - 60)
    roomy.exit(first)
    roomy.step(first, times=3)
    roomy.step(second)
    now = standing(roomy, agents)
    assert roomy.job(second).state == "PENDING"
    assert now.used + now.reserved == pytest.approx(1.5 * HOUR), "all that is left"
    roomy.phase(second, LearnerPhase.PROCESSING)
    roomy.step(second)
    roomy.pass_time(now.reserved - GRACE - 60)
    roomy.step(second)
    assert roomy.job(second).state == "PROCESSING"
    roomy.pass_time(61)
    roomy.step(second)
    (attempt,) = roomy.attempts(second)
    assert (attempt.outcome, attempt.grace_seconds) == ("HALTED", GRACE), "it has time to save a checkpoint"
    roomy.exit(second)
    roomy.step(second, times=3)
    halted = roomy.job(second)
    assert halted.state == "HALTED"
    assert halted.reason.startswith("halted by the budget of token agent: the 0.5")
    assert standing(roomy, agents).used <= 1.5 * HOUR


def test_jobs_of_a_budget_that_is_used_up_are_halted(roomy: World) -> None:
    agents = budget(roomy, 0.01)
    job, small = submit(roomy, agents), roomy.submit(budget_id=agents)
    roomy.step(job)
    roomy.step(small)
    roomy.step(job)
    assert roomy.job(job).state == "HALTED"
    assert roomy.job(job).reason == "halted by the budget of token agent: 0 of 0.01 GPU-hours are used"
    assert roomy.job(small).state == "PENDING", "a job without GPUs costs nothing"


def test_two_engines_at_once_never_overspend_a_budget(roomy: World) -> None:
    agents = budget(roomy, 20)
    second = ObservedEngine(FakeEngine(nodes=roomy.engine.nodes), "second", Ages(0, 0, 0))
    context = replace(roomy.context, engines={**roomy.context.engines, "second": second})
    for engine in ("local", "second"):
        for _ in range(20):
            roomy.submit(budget_id=agents, engine=engine, resources={"gpus": 1}, max_runtime=HOUR)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda name: admit(context, name), ["local", "second"] * 4))
    with roomy.transaction() as session:
        charges = session.scalars(select(Charge)).all()
    assert len(charges) == 19
    assert standing(roomy, agents).reserved == 19 * (HOUR + GRACE)


def test_a_large_job_that_waits_is_not_starved_by_small_ones() -> None:
    purse = Purse("agent", limit=100, used=0, reserved=50)
    large, small = Need(80, 10), Need(40, 10)
    assert purse.grant(large) == 0
    purse.hold_back(large)
    assert purse.grant(small) == 0, "what the large job waits for is kept"
    assert replace(purse, reserved=0, kept=0).grant(Need(200, 10)) == 100
    assert replace(purse, reserved=0, kept=0, used=95).is_used_up(small)
    assert not replace(purse, kept=0, used=95).is_used_up(small), "others may give back"
