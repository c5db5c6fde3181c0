"""The sweeper alone, without any hint from Redis."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import func, select
from tests.workers.world import World

from weft_core.engine import EngineUnreachable
from weft_core.lifecycle.states import LearnerPhase
from weft_core.settings import TimingSettings
from weft_core.store.models import Job
from weft_core.wake import Wake
from weft_workers.context import Context
from weft_workers.sweeper import Sweeper


def until(condition: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@contextmanager
def sweeping(context: Context, **timings: float) -> Iterator[Sweeper]:
    quick = context.settings.model_copy(update={"timings": TimingSettings(sweep=0.1, **timings)})
    sweeper = Sweeper(replace(context, settings=quick), threads=3)
    thread = threading.Thread(target=sweeper.run)
    thread.start()
    try:
        yield sweeper
    finally:
        sweeper.stop()
        thread.join(300)
        assert not thread.is_alive()


def test_with_redis_away_for_good_a_job_completes(world: World, context: Context) -> None:
    nowhere = Wake("unix:///nowhere/redis.sock")
    world.context = replace(context, wake=nowhere)
    job = world.submit(learners=2)
    with sweeping(world.context):
        until(lambda: world.job(job).state == "PENDING" and bool(world.engine.created))
        world.phase(job, LearnerPhase.PROCESSING)
        until(lambda: world.job(job).state == "PROCESSING")
        world.exit(job, 0)
        until(lambda: world.job(job).state == "COMPLETED")
    assert world.engine.created == [f"weft-{job}-1"]
    nowhere.close()


def test_a_job_whose_worker_died_goes_on_when_its_lease_runs_out(world: World, context: Context) -> None:
    job = world.submit()
    with world.transaction() as session:
        row = session.get_one(Job, job)
        row.lease_token, row.lease_owner, row.lease_until = "dead", "dead:1", row.created_at
        row.version = 7
    with sweeping(context):
        until(lambda: world.job(job).state == "PENDING")


def test_trouble_with_one_job_is_logged_and_leaves_the_others_alone(world: World, context: Context) -> None:
    broken, fine = world.submit(), world.submit()
    with world.transaction() as session:
        session.get_one(Job, broken).state = "PROCESSING"  # with no attempt: somebody's edit
    with sweeping(context):
        until(lambda: world.job(fine).state == "PENDING")
        until(lambda: world.job(broken).version > 0 and world.job(broken).lease_token is None)
    row = world.job(broken)
    assert row.state == "PROCESSING"
    assert row.next_step_at is not None, "tried again later"
    assert row.condition == "an unexpected error of the service, whose log says more; it tries again"


def test_the_next_sweep_comes_when_the_next_job_is_due(world: World, context: Context) -> None:
    rare = context.settings.model_copy(update={"timings": TimingSettings(sweep=1000)})
    sweeper = Sweeper(replace(context, settings=rare), threads=1)
    assert sweeper.sweep() >= 700, "nothing is due: the usual interval"
    job = world.submit()
    with world.transaction() as session:
        session.get_one(Job, job).next_step_at = func.now() + timedelta(seconds=300)
    assert 100 < sweeper.sweep() <= 300
    sweeper.stop()
    sweeper.run()


def is_due(world: World, job: str) -> bool:
    with world.transaction() as session:
        return bool(session.scalar(select(Job.next_step_at <= func.now()).where(Job.id == job)))


def test_room_that_comes_free_goes_on_at_once(world: World, context: Context) -> None:
    """A pod ends later than the step that gets its learner's exit report, and no worker polls each pod."""
    world.engine.obeys = False
    jobs = [world.running(resources={"gpus": 1}) for _ in range(4)]
    after = world.submit(resources={"gpus": 1})
    world.step(after)
    rare = context.settings.model_copy(update={"timings": TimingSettings(sweep=1000)})
    sweeper = Sweeper(replace(context, settings=rare), threads=2)
    assert not sweeper.watch_endings(), "none is ending"
    for job in jobs:
        world.exit(job, 0)
        world.step(job)
    assert {world.job(job).state for job in jobs} == {"PROCESSING"}
    with world.transaction() as session:
        for job in jobs:
            session.get_one(Job, job).next_step_at = func.now() + timedelta(seconds=300)
    time.sleep(0.3)  # what the last step saw is older than a look by now
    looks = world.engine.looks
    assert sweeper.watch_endings()
    assert world.engine.looks == looks + 1, "one look for all"
    assert {world.job(job).state for job in jobs} == {"PROCESSING"}, "their pods are still there"

    world.engine.runs.clear()
    time.sleep(0.3)
    sweeper.watch_endings()
    until(lambda: {world.job(job).state for job in jobs} == {"COMPLETED"})
    until(lambda: is_due(world, after))  # the workers whose steps see the jobs end make it due a moment later
    sweeper.sweep()
    until(lambda: world.job(after).state == "PENDING")
    sweeper.stop()
    sweeper.run()


def test_an_ending_that_the_step_does_not_confirm_is_left_to_its_poll(
    world: World, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.engine.obeys = False
    job = world.running()
    world.exit(job, 0)
    world.step(job)
    world.engine.runs.clear()
    monkeypatch.setattr(context.engines["local"], "stop", away)
    sweeper = Sweeper(context, threads=1)
    time.sleep(0.3)
    sweeper.watch_endings()
    until(lambda: len(world.events(job, "condition")) == 1)
    until(lambda: world.job(job).lease_token is None)
    due = world.job(job).next_step_at
    assert due is not None
    for _ in range(3):
        time.sleep(0.3)
        sweeper.watch_endings()
    assert (world.job(job).next_step_at, world.job(job).state) == (due, "PROCESSING")
    sweeper.stop()
    sweeper.run()


def away(run_name: str, grace: timedelta) -> None:
    raise EngineUnreachable("forbidden")
