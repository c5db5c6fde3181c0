"""Jobs that start after other jobs: once, when those have ended as they must, however many workers check it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select, update
from tests.workers.world import PROJECT, World

from weft_core.ids import new_id
from weft_core.lifecycle.states import JobState
from weft_core.manifest import After
from weft_core.store import jobs
from weft_core.store.models import Job
from weft_core.store.predecessors import add_predecessors
from weft_core.store.scope import Scope
from weft_workers.following import follow
from weft_workers.reconcile.admit import admit


def submit_after(world: World, *after: tuple[str, str], keepalive: int | None = None) -> str:
    first = world.submit()
    with world.transaction() as session:
        like = session.get_one(Job, first)
        scope, fields = Scope(session, PROJECT), ("user_id", "name", "manifest", "engine", "priority", "learners")
        copy = Job(id=new_id("job"), retries=0, **{field: getattr(like, field) for field in fields})
        copy.keepalive_seconds = keepalive
        jobs.submit(scope, copy, [])
        session.refresh(copy)
        add_predecessors(scope, copy, [After.model_validate({"job": job, "on": on}) for job, on in after])
        session.delete(like)
    return copy.id


def end(world: World, job_id: str, state: JobState) -> None:
    with world.transaction() as session:
        job = session.get_one(Job, job_id)
        if state is JobState.COMPLETED:
            jobs.transition(session, job, JobState.PENDING, "starting")
        jobs.transition(session, job, state, state.lower())


def finish(world: World, job_id: str) -> None:
    world.exit(job_id, 0)
    world.step(job_id)
    assert world.job(job_id).state == "COMPLETED"


def begin(world: World) -> None:
    """All that a worker does for jobs that wait."""
    follow(world.context)
    admit(world.context, "local")


def test_a_job_waits_in_no_queue_until_the_jobs_before_it_have_ended(world: World) -> None:
    first, second = world.submit(), world.submit()
    last = submit_after(world, (first, "completed"), (second, "ended"))
    begin(world)
    waiting = world.job(last)
    assert (waiting.state, waiting.place, waiting.next_step_at) == ("QUEUED", None, None)
    assert waiting.reason == f"waiting for {first} to complete, {second} to end"
    world.step(last)
    assert world.job(last).state == "QUEUED", "a hint does not start it"

    world.halt(second)
    world.step(second)
    begin(world)
    assert world.job(last).reason == f"waiting for {first} to complete"
    finish(world, first)
    begin(world)
    assert world.job(last).state == "PENDING"
    assert len(world.attempts(last)) == 1


@pytest.mark.parametrize(
    ("on", "state", "becomes", "reason"),
    [
        ("completed", JobState.COMPLETED, "PENDING", "starting 1 learner on engine local"),
        ("completed", JobState.FAILED, "FAILED", "{} is FAILED, and this job starts only when it has completed"),
        ("completed", JobState.HALTED, "QUEUED", "waiting for {} to complete"),
        ("failed", JobState.COMPLETED, "FAILED", "{} is COMPLETED, and this job starts only when it has failed"),
        ("failed", JobState.FAILED, "PENDING", "starting 1 learner on engine local"),
        ("failed", JobState.HALTED, "QUEUED", "waiting for {} to fail"),
        ("ended", JobState.COMPLETED, "PENDING", "starting 1 learner on engine local"),
        ("ended", JobState.FAILED, "PENDING", "starting 1 learner on engine local"),
        ("ended", JobState.HALTED, "PENDING", "starting 1 learner on engine local"),
    ],
)
def test_every_end_of_the_job_before(world: World, on: str, state: JobState, becomes: str, reason: str) -> None:
    first = world.submit()
    last = submit_after(world, (first, on))
    end(world, first, state)
    begin(world)
    found = world.job(last)
    assert (found.state, found.reason) == (becomes, reason.format(first))


def test_a_chain_fails_to_its_end_and_resumes_from_its_beginning(world: World) -> None:
    first = world.submit()
    second = submit_after(world, (first, "completed"))
    third = submit_after(world, (second, "completed"))
    end(world, first, JobState.FAILED)
    begin(world)
    begin(world)
    assert [world.job(job).state for job in (second, third)] == ["FAILED", "FAILED"]

    for job in (first, second, third):
        world.resume(job)
    begin(world)
    assert [world.job(job).state for job in (first, second, third)] == ["PENDING", "QUEUED", "QUEUED"]
    finish(world, first)
    begin(world)
    assert [world.job(job).state for job in (second, third)] == ["PENDING", "QUEUED"]


def test_an_end_counts_even_if_its_job_is_deleted_later(world: World) -> None:
    first, second = world.submit(), world.submit()
    last = submit_after(world, (first, "completed"), (second, "completed"))
    end(world, first, JobState.COMPLETED)
    begin(world)
    with world.transaction() as session:
        session.delete(session.get_one(Job, first))
    begin(world)
    assert world.job(last).state == "QUEUED"
    world.delete(second)
    world.step(second, 3)
    begin(world)
    assert world.job(last).reason == f"{second} was deleted, and this job starts only when it has completed"


def test_many_workers_start_it_once(world: World) -> None:
    first = world.submit()
    followers = [submit_after(world, (first, "ended")) for _ in range(3)]
    end(world, first, JobState.COMPLETED)
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda _: begin(world), range(8)):
            pass
    begin(world)
    assert [len(world.attempts(job)) for job in followers] == [1, 1, 1]
    for job in followers:
        assert world.events(job, "waiting") == [
            f"waiting for {first} to end",
            "the jobs before it have ended: waiting for admission",
        ]


def test_it_is_halted_while_it_waits(world: World) -> None:
    first = world.submit()
    last = submit_after(world, (first, "completed"))
    world.halt(last)
    world.step(last)
    assert world.job(last).state == "HALTED"
    finish(world, first)
    begin(world)
    assert world.job(last).state == "HALTED"
    world.resume(last)
    begin(world)
    assert world.job(last).state == "PENDING"


def test_it_ends_with_its_client_while_it_waits(world: World) -> None:
    first = world.submit()
    last = submit_after(world, (first, "completed"), keepalive=60)
    assert world.job(last).next_step_at == world.job(last).keepalive_until
    with world.transaction() as session:  # its client has been heard of since
        later = select(func.now() + func.make_interval(0, 0, 0, 0, 1)).scalar_subquery()
        session.execute(update(Job).where(Job.id == last).values(keepalive_until=later))
    world.step(last)
    assert world.job(last).state == "QUEUED"
    assert world.job(last).next_step_at == world.job(last).keepalive_until
    with world.transaction() as session:
        session.execute(update(Job).where(Job.id == last).values(keepalive_until=func.now()))
    world.step(last)
    assert world.job(last).state == "HALTED"
