"""Passes of admission: one for each change and for all jobs, written once, and by one worker at a time."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from sqlalchemy import event, func, select, text, update
from tests.processes import FORKS
from tests.workers.crashing import plan_and_die
from tests.workers.test_admit import states, sweep
from tests.workers.world import World

from weft_core.engine import Preparation
from weft_core.store import jobs
from weft_core.store.models import Attempt, EngineStatus, Job, Queue, QueueChange
from weft_core.store.queue import note_change, note_change_everywhere
from weft_core.wake import STEP_QUEUE
from weft_workers.reconcile import admit as admission
from weft_workers.reconcile import noting, step
from weft_workers.reconcile.admit import admit, due
from weft_workers.reconcile.preparing import Prepared


def passes(world: World) -> float:
    counted = world.context.metrics.registry.get_sample_value("weft_admission_pass_seconds_count", {"engine": "local"})
    return counted or 0


def changes(world: World) -> int:
    with world.transaction() as session:
        return session.scalar(select(func.count()).select_from(QueueChange)) or 0


def versions(world: World) -> list[tuple[str, str]]:
    """Of the jobs' rows: another one whenever a row is written."""
    with world.transaction() as session:
        return [(row[0], row[1]) for row in session.execute(text("select id, xmin::text from jobs order by id"))]


@contextmanager
def statements(world: World) -> Iterator[list[str]]:
    seen: list[str] = []

    def note(*given: object) -> None:
        seen.append(str(given[2]))

    event.listen(world.context.database.engine, "before_cursor_execute", note)
    yield seen
    event.remove(world.context.database.engine, "before_cursor_execute", note)


def copies(world: World, job_id: str, number: int) -> None:
    """More jobs like one that waits."""
    with world.transaction() as session:
        row = session.get_one(Job, job_id)
        copied = [column.name for column in Job.__table__.columns if column.name != "id"]
        fields = {name: getattr(row, name) for name in copied}
        session.add_all(Job(id=f"{job_id}-{n}", **fields) for n in range(number))


def change(world: World) -> None:
    with world.transaction() as session:
        note_change(session, "local")


def test_one_pass_is_for_all_jobs_and_no_job_is_stepped(world: World) -> None:
    world.running(resources={"gpus": 4})
    waiting = [world.submit(resources={"gpus": 1}) for _ in range(12)]
    before = passes(world)
    for job in waiting:
        step(world.context, job)
    assert passes(world) == before + 1
    assert [world.job(job).place for job in waiting] == list(range(1, 13))
    assert {(world.job(job).version, world.job(job).next_step_at) for job in waiting} == {(0, None)}
    sweep(world)
    assert passes(world) == before + 1, "nothing has changed"


def test_a_pass_takes_as_many_statements_for_many_jobs_and_writes_only_what_has_changed(world: World) -> None:
    busy = world.running(resources={"gpus": 4})
    first = world.submit(resources={"gpus": 1})
    counted = []
    for number in (3, 60):
        copies(world, first, number)
        change(world)
        assert admit(world.context, "local")
        change(world)
        before = versions(world)
        with statements(world) as seen:
            assert admit(world.context, "local")
        assert versions(world) == before
        counted.append(len(seen))
        with world.transaction() as session:
            session.execute(text("delete from jobs where id like :copies"), {"copies": f"{first}-%"})
    assert counted[0] == counted[1]
    assert len(world.events(first, "waiting")) == 1
    assert world.job(busy).state == "PROCESSING"


def test_each_change_asks_for_a_pass(world: World) -> None:
    running, halted, deleted = (
        world.running(resources={"gpus": 1}),
        world.submit(resources={"gpus": 4}),
        world.submit(),
    )
    engine = select(EngineStatus).where(EngineStatus.name == "local").with_for_update()
    world.engine.grows = True
    with world.transaction() as other:  # another worker makes a pass all the while, so that only notes are left
        other.scalars(engine).one()
        for number, (what, job) in enumerate(((world.halt, halted), (world.delete, deleted)), 1):
            what(job)
            step(world.context, job)
            assert changes(world) == number
        world.exit(running, 0)
        world.step(running)
        assert changes(world) == 3
        step(world.context, world.submit())
        assert changes(world) == 4
        world.submit()
        with world.transaction() as session:
            note_change_everywhere(session)
        assert changes(world) == 5
        assert not admit(world.context, "local")
        assert changes(world) == 5
    before = passes(world)
    sweep(world)
    assert (changes(world), passes(world)) == (0, before + 1), "one pass is for all of them"


def test_a_worker_that_is_killed_in_a_pass_has_done_nothing(world: World, tmp_path: Path) -> None:
    fits, waits = world.submit(), world.submit(resources={"cpus": 4})
    change(world)
    before = versions(world)
    process = FORKS.Process(target=plan_and_die, args=(world.context.settings, tmp_path))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    assert (versions(world), changes(world), world.attempts(fits)) == (before, 1, [])
    sweep(world)
    assert states(world, [fits, waits]) == ["PENDING", "QUEUED"]
    assert changes(world) == 0


def test_a_pass_that_has_just_been_made_is_not_made_again_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = world.submit(), world.submit()
    step(world.context, first)
    monkeypatch.setattr(admission, "REST", 1e9)
    third = world.submit()
    step(world.context, third)
    assert states(world, [first, second, third]) == ["PENDING", "PENDING", "QUEUED"]
    assert changes(world) == 1
    monkeypatch.setattr(admission, "REST", 0.0)
    sweep(world)
    assert world.job(third).state == "PENDING"


def test_jobs_of_an_earlier_version_are_taken_over(world: World) -> None:
    world.running(resources={"gpus": 4})
    polled, leased = (world.submit(resources={"gpus": 1}) for _ in range(2))
    with world.transaction() as session:
        later = func.now() + text("interval '20 seconds'")
        session.execute(update(Job).where(Job.id == polled).values(next_step_at=later, reason="polls", place=7))
        taken = {"lease_token": "old", "lease_until": later, "next_step_at": later}
        session.execute(update(Job).where(Job.id == leased).values(taken))
        session.execute(text("delete from queues"))
    sweep(world)
    assert not due(world.context, "local")
    step(world.context, world.submit(resources={"gpus": 1}))
    assert (world.job(polled).next_step_at, world.job(polled).place) == (None, 1)
    assert world.job(leased).lease_token == "old", "an earlier version's worker is at it"
    world.pass_time(30)
    step(world.context, leased)
    assert (world.job(leased).next_step_at, world.job(leased).place) == (None, 2)


def test_a_long_queue_is_told_of_numbers_now_and_then_and_of_news_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noting, "_FEW", 2)
    monkeypatch.setattr(noting, "_FIRST", 1)
    busy = world.running(resources={"gpus": 4})
    waiting = [world.submit(resources={"gpus": 4}) for _ in range(6)]
    step(world.context, waiting[0])
    assert [world.job(job).place for job in waiting] == [1, 2, 3, 4, 5, 6]
    world.exit(busy, 0)
    world.step(busy)
    new = world.submit(resources={"gpus": 4})
    step(world.context, new)
    assert [world.job(job).place for job in (*waiting[1:], new)] == [1, 3, 4, 5, 6, 6]
    with world.transaction() as session:
        queue = session.scalars(select(Queue)).one()
        assert queue.noted_at is not None
        assert queue.next_pass_at is not None
        assert (queue.next_pass_at - queue.noted_at).total_seconds() == noting.AGAIN
        session.execute(update(Queue).values(noted_at=queue.noted_at - (queue.next_pass_at - queue.noted_at)))
    change(world)
    assert admit(world.context, "local")
    assert [world.job(job).place for job in (*waiting[1:], new)] == [1, 2, 3, 4, 5, 6]


def test_many_jobs_are_admitted_in_several_transactions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_AT_ONCE", 2)
    fit = [world.submit(resources={"cpus": 0.5}) for _ in range(5)]
    never = [world.submit(resources={"cpus": 8}) for _ in range(3)]
    change(world)
    for admitted, failed in ((2, 2), (4, 3), (5, 3)):
        assert due(world.context, "local")
        assert admit(world.context, "local")
        assert states(world, fit).count("PENDING") == admitted
        assert states(world, never).count("FAILED") == failed
    assert not due(world.context, "local")


def test_the_client_of_a_waiting_job_may_fall_silent(world: World) -> None:
    world.running(resources={"gpus": 4})
    job = world.submit(resources={"gpus": 1}, keepalive_seconds=60)
    step(world.context, job)
    row = world.job(job)
    assert row.next_step_at == row.keepalive_until is not None
    before = passes(world)
    world.pass_time(61)
    with world.transaction() as session:
        jobs.keep_alive(session.get_one(Job, job))
    step(world.context, job)
    row = world.job(job)
    assert row.next_step_at == row.keepalive_until
    assert (row.state, passes(world)) == ("QUEUED", before), "it was heard of, so nothing has changed"
    world.pass_time(61)
    step(world.context, job)
    assert world.job(job).state == "HALTED"


def test_a_pause_after_a_failure_ends_by_itself(world: World) -> None:
    job = world.running(retries=1)
    world.exit(job, 3)
    world.step(job)
    change(world)
    admit(world.context, "local")
    (attempt,) = world.attempts(job)
    due_at = world.job(job).next_step_at
    assert due_at is not None
    assert attempt.ended_at is not None
    assert (due_at - attempt.ended_at).total_seconds() == 1
    world.pass_time(2)
    step(world.context, job)
    assert world.job(job).state == "PENDING"


def test_a_job_whose_image_nobody_has_asked_for_is_not_admitted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was submitted after the engine was asked for the images of those that waited then."""
    world.engine.images["horovod:1"] = Preparation("building horovod: 10 %")
    job = world.submit(image="horovod:1")
    with monkeypatch.context() as patch:
        patch.setattr(admission, "prepare", lambda *given: Prepared({}, frozenset()))
        step(world.context, job)
    assert (world.job(job).state, changes(world)) == ("QUEUED", 1)
    sweep(world)
    assert world.job(job).reason == "building horovod: 10 %"
    with world.transaction() as session:
        assert session.scalars(select(Attempt)).all() == []


def test_no_other_worker_is_woken_for_the_job_whose_step_made_the_pass(world: World, redis_url: str) -> None:
    other, job = world.submit(), world.submit()
    change(world)
    world.step(job)
    assert states(world, [other, job]).count("PENDING") == 2
    with redis.Redis.from_url(redis_url) as client:
        tasks = [json.loads(task)["headers"]["argsrepr"] for task in client.lrange(STEP_QUEUE, 0, -1)]
    assert tasks == [f"['{other}']"]
