"""Leases on a real database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, update
from tests.workers.world import World

from weft_core.store.models import Job
from weft_workers.lease import Lease, LeaseLost, claim, renew, take


def launched(world: World) -> str:
    """A job that does not wait for admission, and so has steps."""
    job = world.submit()
    with world.transaction() as session:
        session.execute(update(Job).where(Job.id == job).values(state="PENDING"))
    return job


def claimed(world: World, job: str, seconds: float = 30) -> Lease | None:
    with world.transaction() as session:
        return claim(session, job, "me", seconds)


def ask(world: World, job: str) -> None:
    """Somebody wants a step, as the API does."""
    with world.transaction() as session:
        session.execute(update(Job).where(Job.id == job).values(next_step_at=func.now()))


def test_one_of_many_gets_it(world: World) -> None:
    job = launched(world)
    with ThreadPoolExecutor(4) as pool:
        leases = [lease for lease in pool.map(lambda _: claimed(world, job), range(12)) if lease]
    assert len(leases) == 1
    assert world.job(job).lease_token == leases[0].token


def test_a_job_that_is_not_due_is_left_alone(world: World) -> None:
    job = launched(world)
    lease = claimed(world, job)
    assert lease
    with world.transaction() as session:
        assert take(session, lease).release(60) is False
    assert claimed(world, job) is None
    ask(world, job)
    assert claimed(world, job)


def test_a_lease_that_ran_out_is_anybodys_and_its_holder_writes_nothing(world: World) -> None:
    job = launched(world)
    old = claimed(world, job)
    assert old
    assert claimed(world, job) is None
    world.pass_time(31)
    new = claimed(world, job)
    assert new
    with pytest.raises(LeaseLost), world.transaction() as session:
        take(session, old)
    with pytest.raises(LeaseLost):
        renew(world.context.database, old)
    with world.transaction() as session:
        take(session, new).release(None)


def test_a_wish_that_comes_in_during_a_step_is_not_overwritten(world: World) -> None:
    job = launched(world)
    lease = claimed(world, job)
    assert lease
    ask(world, job)
    with world.transaction() as session:
        taken = take(session, lease)
        assert taken.asked is not None
        assert taken.release(None) is True
    assert claimed(world, job), "due at once"


@pytest.mark.parametrize("asked", [False, True])
def test_a_renewed_lease_lasts_longer_and_keeps_a_wish(world: World, asked: bool) -> None:
    job = launched(world)
    lease = claimed(world, job)
    assert lease
    if asked:
        ask(world, job)
    before = lease.due
    renew(world.context.database, lease)
    assert lease.due > before
    assert world.job(job).lease_until == lease.due
    with world.transaction() as session:
        assert take(session, lease).release(60) is asked


def test_a_deleted_job_has_no_lease(world: World) -> None:
    job = launched(world)
    lease = claimed(world, job)
    assert lease
    with world.transaction() as session:
        session.delete(session.get_one(Job, job))
    with pytest.raises(LeaseLost), world.transaction() as session:
        take(session, lease)


def test_a_job_that_waits_has_no_steps_until_it_is_to_end(world: World) -> None:
    halted, silent = world.submit(), world.submit(keepalive_seconds=60)
    assert claimed(world, halted) is None
    world.halt(halted)
    assert claimed(world, halted)
    assert claimed(world, silent) is None
    world.pass_time(61)
    assert claimed(world, silent)
