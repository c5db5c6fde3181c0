"""Fair share and preemption against a real database: the use of projects, the order of their turns, and that a
preempted job loses nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select, update
from tests.workers.fake_engine import FakeEngine
from tests.workers.world import PROJECT, USER, World

from weft_core.lifecycle.states import LearnerPhase
from weft_core.settings import FairShareSettings
from weft_core.store.models import Attempt, Job, Learner, Member, Project, User
from weft_core.store.shares import averages
from weft_workers.context import Context
from weft_workers.reconcile import step

OTHER, GRACE = "prj-2", "usr-2"


@pytest.fixture
def world(context: Context, engine: FakeEngine) -> World:
    """With a second project, vision, and a second user, grace."""
    made = World(context, engine)
    with made.transaction() as session:
        session.merge(Project(id=OTHER, name="vision"))
        session.merge(User(id=GRACE, name="grace"))
    return made


def change(world: World, project: str, **fields: Any) -> None:
    with world.transaction() as session:
        session.execute(update(Project).where(Project.id == project).values(**fields))


def with_settings(world: World, **changes: Any) -> World:
    fair = FairShareSettings(**changes)
    settings = world.context.settings.model_copy(update={"fair_share": fair})
    return World(replace(world.context, settings=settings), world.engine)


def used(world: World) -> dict[str, float]:
    with world.transaction() as session:
        return averages(session, world.context.settings.fair_share, [PROJECT, OTHER])


def saved(world: World, job_id: str, seconds: float) -> None:
    """A learner of the job says that its stored checkpoint is so old."""
    with world.transaction() as session:
        mine = Learner.attempt_id.in_(select(Attempt.id).where(Attempt.job_id == job_id))
        age = func.make_interval(0, 0, 0, 0, 0, 0, seconds)
        session.execute(update(Learner).where(mine).values(saved_at=func.now() - age))


def test_what_is_used_counts_from_the_launch_and_decays(world: World) -> None:
    world = with_settings(world, half_life=3600)
    job = world.running(resources={"gpus": 1})
    assert used(world)[PROJECT] < 0.1
    world.pass_time(3600)
    assert used(world)[PROJECT] == pytest.approx(17 / 2, rel=0.05), "half of 1 CPU and 1 GPU, after a half-life"
    world.exit(job)
    world.step(job)
    assert world.job(job).state == "COMPLETED"
    assert used(world)[PROJECT] == pytest.approx(17 / 2, rel=0.05), "it is not counted twice"
    world.delete(job)
    world.step(job)
    assert world.find(job) is None
    world.pass_time(3600)
    assert used(world)[PROJECT] == pytest.approx(17 / 4, rel=0.05)
    assert used(world)[OTHER] == 0
    world.pass_time(3600 * 10_000)
    assert used(world)[PROJECT] == 0


def test_the_next_turn_is_the_other_projects(world: World) -> None:
    busy = world.running(resources={"gpus": 4})
    mine = [world.submit(resources={"gpus": 4}, priority=90) for _ in range(2)]
    theirs = world.submit(resources={"gpus": 4}, project=OTHER)
    world.pass_time(60)
    for job in (*mine, theirs):
        world.step(job)
    assert [world.job(job).place for job in (theirs, *mine)] == [1, 2, 3]
    assert world.job(mine[0]).reason == (
        "waiting for 4 GPUs: 0 of 4 free; queued behind 1 job: project lab has used 100% of late, its share is 50%"
    )
    world.exit(busy)
    world.step(busy)
    for job in (*mine, theirs):
        step(world.context, job)
    assert [world.job(job).state for job in (theirs, *mine)] == ["PENDING", "QUEUED", "QUEUED"]
    assert world.job(theirs).place is None


def test_a_borrowed_gang_saves_and_its_room_is_given_away_when_it_is_gone(world: World) -> None:
    change(world, PROJECT, guaranteed={"gpus": 2})
    old, young = (world.running(resources={"gpus": 2}, project=OTHER, retries=0) for _ in range(2))
    world.pass_time(600)
    saved(world, young, 5)
    world.engine.obeys = False
    wants = world.submit(resources={"gpus": 2})
    world.step(wants)
    assert world.job(wants).reason == "waiting for 2 GPUs: 0 of 4 free; 1 running job is to save and make room"
    words = f"preempted by {wants} of project lab"

    step(world.context, young)  # not made due by the test: admission did that
    (attempt,) = world.attempts(young)
    assert (attempt.outcome, attempt.reason, attempt.grace_seconds) == ("INTERRUPTED", words, 120)
    assert attempt.stop_requested_at is not None, "its next heartbeat asks it to save"
    assert world.events(young, "stopping") == [f"{words}: up to 120 s for a last checkpoint"]
    world.step(young)
    stopped, grace = world.engine.stops[-1]
    assert stopped == attempt.run_name
    assert 0 < grace <= 120
    for _ in range(3):
        world.step(wants)
    assert world.job(wants).state == "QUEUED", "the room is not given away while it saves"
    assert [attempt.outcome for attempt in world.attempts(old)] == [None], "nobody else is asked"

    world.engine.obeys = True
    world.exit(young, 143)
    world.step(young)
    job = world.job(young)
    assert (job.state, job.failures, job.error_code) == ("QUEUED", 0, None)
    step(world.context, wants)
    assert world.job(wants).state == "PENDING"
    world.step(young)
    assert world.job(young).reason.startswith(f"{words}; waiting for 2 GPUs: 0 of 4 free")
    assert world.states(young)[-1] == "QUEUED"

    world.exit(old)
    world.step(old)
    step(world.context, young)
    assert world.job(young).state == "PENDING", "it waits for no pause after its attempt"
    assert [attempt.n for attempt in world.attempts(young)] == [1, 2]


def test_who_does_not_save_in_time_loses_its_room_all_the_same(world: World) -> None:
    change(world, PROJECT, guaranteed={"gpus": 4})
    victim = world.running(resources={"gpus": 4}, project=OTHER)
    wants = world.submit(resources={"gpus": 4})
    world.engine.obeys = False
    world.step(wants)
    world.step(victim, 2)
    assert world.job(wants).state == "QUEUED"
    world.pass_time(130)
    world.engine.obeys = True  # the engine kills it at the end of the grace
    world.step(victim)
    assert world.engine.stops[-1][1] == 0
    assert (world.job(victim).state, world.job(victim).failures) == ("QUEUED", 0)
    step(world.context, wants)
    assert world.job(wants).state == "PENDING"


def test_a_halt_or_an_end_goes_before_a_preemption(world: World) -> None:
    change(world, PROJECT, guaranteed={"gpus": 4})
    halted, ended = (world.running(resources={"gpus": 2}, project=OTHER) for _ in range(2))
    world.step(world.submit(resources={"gpus": 4}))
    assert all(world.attempts(job)[0].preempted_by for job in (halted, ended))
    world.halt(halted)
    world.exit(ended, 0)
    world.step(halted, 2)
    world.step(ended, 2)
    assert [world.job(job).state for job in (halted, ended)] == ["HALTED", "COMPLETED"]


def test_nobody_is_preempted_without_a_guarantee_or_for_a_higher_priority(world: World) -> None:
    running = world.running(resources={"gpus": 4}, project=OTHER, priority=1)
    for project in (PROJECT, OTHER):
        world.step(world.submit(resources={"gpus": 4}, project=project, priority=100))
    assert world.attempts(running)[0].preempted_by is None


def test_a_higher_priority_preempts_within_the_project_if_the_settings_say_so(world: World) -> None:
    world = with_settings(world, preemption="priority")
    low = world.running(resources={"gpus": 4}, priority=10)
    world.step(world.submit(resources={"gpus": 4}, project=OTHER, priority=100))
    assert world.attempts(low)[0].preempted_by is None, "priority means nothing to other projects"
    world.step(urgent := world.submit(resources={"gpus": 4}, priority=90))
    with world.transaction() as session:
        session.execute(update(Job).where(Job.project_id == OTHER).values(desired="HALTED"))
    world.step(urgent)
    assert world.attempts(low)[0].preempted_by == urgent
    world.step(low, 3)
    step(world.context, urgent)
    assert [world.job(job).state for job in (urgent, low)] == ["PENDING", "QUEUED"]


def test_a_project_that_may_not_borrow_keeps_to_its_guarantee(world: World) -> None:
    change(world, PROJECT, guaranteed={"gpus": 2}, borrows=False)
    first, second = (world.submit(resources={"gpus": 2}) for _ in range(2))
    for job in (first, second):
        world.step(job)
    assert world.job(first).state == "PENDING"
    assert world.job(second).reason == (
        "waiting for guarantee of project lab, which may not borrow: 2 of 2 GPUs in use"
    )
    change(world, PROJECT, borrows=True)
    world.step(second)
    assert world.job(second).state == "PENDING"


def test_a_cap_on_a_role_binds_each_member_of_it(world: World) -> None:
    with world.transaction() as session:
        session.add_all(
            [
                Member(project_id=PROJECT, user_id=USER, role="editor"),
                Member(project_id=PROJECT, user_id=GRACE, role="editor"),
            ]
        )
    change(world, PROJECT, caps={"editor": {"gpus": 2, "priority": 50}})
    first, second = (world.submit(resources={"gpus": 1}) for _ in range(2))
    third, hers = world.submit(resources={"gpus": 1}), world.submit(resources={"gpus": 2}, user=GRACE)
    for job in (first, second, third, hers):
        world.step(job)
    assert [world.job(job).state for job in (first, second, hers)] == ["PENDING"] * 3
    assert world.job(third).reason == "waiting for cap on ada (editor) in project lab: 2 of 2 GPUs in use"
    elastic = world.running(user=USER, resources={"gpus": 0}, elastic={"min": 1, "max": 2})
    assert world.job(elastic).state == "PROCESSING", "it asks for nothing that is capped"


def test_one_project_with_thousands_of_jobs_hides_no_other(world: World) -> None:
    busy = world.running(resources={"gpus": 4})
    first = world.submit(resources={"gpus": 4}, priority=100)
    with world.transaction() as session:
        row = session.get_one(Job, first)
        copied = [column.name for column in Job.__table__.columns if column.name != "id"]
        session.add_all(
            Job(id=f"job-copy{number}", **{name: getattr(row, name) for name in copied}) for number in range(1100)
        )
    theirs = world.submit(resources={"gpus": 4}, project=OTHER, priority=0)
    world.step(theirs)
    world.exit(busy)
    world.step(busy)
    step(world.context, theirs)
    assert world.job(theirs).state == "PENDING"


def test_a_victim_that_starts_still_has_nothing_to_lose(world: World) -> None:
    change(world, PROJECT, guaranteed={"gpus": 2})
    trains = world.running(resources={"gpus": 2}, project=OTHER)
    world.phase(trains, LearnerPhase.PROCESSING)
    world.pass_time(300)
    starts = world.submit(resources={"gpus": 2}, project=OTHER)
    world.step(starts)
    world.step(world.submit(resources={"gpus": 2}))
    assert world.attempts(trains)[0].preempted_by is None
    assert world.attempts(starts)[0].preempted_by is not None


def test_what_is_storing_ends_by_itself(world: World) -> None:
    change(world, PROJECT, guaranteed={"gpus": 4})
    stores = world.running(resources={"gpus": 4}, project=OTHER)
    world.phase(stores, LearnerPhase.STORING)
    world.step(stores)
    assert world.job(stores).state == "STORING"
    wants = world.submit(resources={"gpus": 4})
    world.step(wants)
    assert world.attempts(stores)[0].preempted_by is None
    assert world.job(wants).reason == "waiting for 4 GPUs: 0 of 4 free"
