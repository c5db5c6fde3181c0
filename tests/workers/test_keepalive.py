"""Jobs that end with their client, or with their idleness."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select, update
from tests.workers.world import World

from weft_core.store import jobs
from weft_core.store.models import Job, Learner


def renew(world: World, job: str) -> None:
    with world.transaction() as session:
        jobs.keep_alive(session.scalars(select(Job).where(Job.id == job).with_for_update()).one())


def test_a_running_job_whose_client_is_silent_is_halted_with_the_reason(world: World) -> None:
    job = world.running(keepalive_seconds=45, learners=2)
    for _ in range(3):
        world.pass_time(40)
        renew(world, job)
        world.step(job)
        assert world.job(job).state == "PROCESSING"
    world.pass_time(46)
    world.step(job)
    assert world.attempts(job)[0].outcome == "HALTED"
    [(_, grace)] = world.engine.stops
    assert 20 < grace <= 30, "they may save a checkpoint"
    world.step(job)
    ended = world.job(job)
    assert (ended.state, ended.reason) == ("HALTED", "the program that launched it has not been heard of for 45s")
    with pytest.raises(jobs.Conflict, match="the job is HALTED"):
        renew(world, job)


def test_a_queued_job_whose_client_is_silent_never_starts(world: World) -> None:
    job = world.submit(keepalive_seconds=45)
    world.pass_time(46)
    world.step(job)
    assert world.job(job).state == "HALTED"
    assert "has not been heard of" in world.job(job).reason
    assert world.engine.runs == {}
    world.resume(job)
    world.step(job)
    assert world.job(job).state == "PENDING", "a resume is a sign of life"


def test_idle_is_neither_a_line_nor_load(world: World) -> None:
    job = world.running(idle_seconds=600)

    def state_after(seconds: float) -> str:
        world.pass_time(seconds)
        with world.transaction() as session:  # it lives, and does nothing
            session.execute(update(Learner).values(heartbeat_at=func.now()))
        world.step(job)
        return world.job(job).state

    assert state_after(500) == "PROCESSING"
    with world.transaction() as session:
        session.execute(update(Learner).values(active_at=func.now()))
    assert state_after(500) == "PROCESSING", "it has worked meanwhile"
    world.write_log(job, 0, "epoch 1\n")
    assert state_after(500) == "PROCESSING", "it has printed meanwhile"
    state_after(120)
    world.step(job)
    ended = world.job(job)
    assert (ended.state, ended.reason) == ("HALTED", "idle for 10m: nothing was printed, no CPU or GPU used")
