"""Jobs that run undisturbed have no steps of their own; one observation of their engine finds those that have news."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import event, func, select, update
from tests.workers.fake_engine import FakeEngine
from tests.workers.world import World

from weft_core.engine import LearnerState
from weft_core.lifecycle.states import LearnerPhase
from weft_core.store.models import Job, Queue
from weft_workers.context import Context
from weft_workers.reconcile import step
from weft_workers.watching import wake_strangers, watch


@pytest.fixture
def quiet(world: World) -> str:
    """A job of two learners that nothing has disturbed."""
    return make_quiet(world)


def make_quiet(world: World) -> str:
    job = world.running(learners=2)
    world.step(job, times=2)  # the first one notes the nodes
    assert 60 < due_in(world, job) <= 300
    return job


def due_in(world: World, job: str) -> float:
    """Seconds."""
    with world.transaction() as session:
        left = select(func.extract("epoch", Job.next_step_at - func.now())).where(Job.id == job)
        return float(session.execute(left).scalar_one())


def look(world: World) -> list[str]:
    """A look at the engine that is due."""
    with world.transaction() as session:
        session.execute(update(Queue).values(next_watch_at=func.now()))
    return watch(world.context, "local")


def test_nothing_is_written_while_nothing_happens(world: World, quiet: str) -> None:
    other = make_quiet(world)
    seen: list[str] = []
    event.listen(world.context.database.engine, "before_cursor_execute", lambda *given: seen.append(given[2]))
    looks = world.engine.looks
    assert look(world) == []
    assert world.engine.looks == looks + 1, "one look for all"
    seen = [statement.split()[0].lower() for statement in seen]
    assert seen == ["update", "insert", "select"], "the test's own, the claim, the learners of all attempts"
    assert due_in(world, quiet) > 60
    assert due_in(world, other) > 60


def test_one_worker_looks_for_all(world: World, quiet: str) -> None:
    world.engine.runs.clear()
    with world.transaction() as session:
        session.execute(update(Queue).values(next_watch_at=func.now() + func.make_interval(0, 0, 0, 0, 0, 0, 60)))
    assert watch(world.context, "local") == [], "another one did a moment ago"
    assert look(world) == [quiet]


def test_a_learner_that_vanished_is_found_lost_as_soon_as_by_steps_of_its_own(world: World, quiet: str) -> None:
    world.engine.lose_learner(world.run, 1)
    assert look(world) == [quiet]
    assert due_in(world, quiet) <= 0
    step(world.context, quiet, linger=False)
    assert [learner.absences for learner in world.learners(quiet)] == [0, 1]
    assert due_in(world, quiet) <= 2, "now it is watched closely"
    assert look(world) == [], "by its own steps"
    world.pass_time(40)  # silent since
    world.step(quiet, times=3)
    assert world.attempts(quiet)[0].outcome == "LOST"


def test_a_learner_that_died_without_a_word_is_noticed(world: World, quiet: str) -> None:
    world.engine.end_learner(world.run, 0, exit_code=137, oom=True)
    assert look(world) == [quiet]
    step(world.context, quiet, linger=False)
    assert "out of memory" in world.attempts(quiet)[0].reason


def test_a_lost_node_is_noticed_and_so_is_its_return(world: World, quiet: str) -> None:
    world.engine.lose_node("node-1")
    assert look(world) == [quiet]
    step(world.context, quiet, linger=False)
    assert world.job(quiet).condition == "learner 1: node node-1 does not answer"
    world.engine.lose_node("node-1", back=True)
    world.step(quiet, times=2)
    assert world.job(quiet).condition is None
    assert due_in(world, quiet) > 60


def test_an_engine_that_does_not_answer_is_told_once(world: World, quiet: str) -> None:
    world.engine.unreachable = "connection refused"
    assert look(world) == [quiet]
    step(world.context, quiet, linger=False)
    assert (world.job(quiet).condition or "").startswith("Unreachable since")
    assert due_in(world, quiet) > 60, "nothing more is to be known now"
    assert look(world) == []
    world.engine.unreachable = ""
    assert look(world) == [quiet]
    step(world.context, quiet, linger=False)
    assert world.job(quiet).condition is None


def test_jobs_of_an_engine_that_was_removed_are_stepped(world: World, context: Context, quiet: str) -> None:
    without = replace(context, engines={})
    wake_strangers(context)
    assert due_in(world, quiet) > 60, "its engine is known"
    wake_strangers(without)
    assert due_in(world, quiet) <= 0
    step(without, quiet, linger=False)
    assert "is not in the settings" in (world.job(quiet).condition or "")
    assert due_in(world, quiet) <= 5, "nobody watches it"


def test_jobs_that_are_stepped_anyway_are_left_to_that(world: World, engine: FakeEngine) -> None:
    job = world.submit()
    world.step(job)
    engine.runs.clear()
    assert look(world) == [], "it has not started"
    held = world.running()
    world.step(held, times=2)
    with world.transaction() as session:
        session.get_one(Job, held).lease_until = func.now()
    engine.runs.clear()
    assert look(world) == [], "somebody has its lease"


def test_a_learner_that_has_ended_well_may_be_gone(world: World, quiet: str) -> None:
    world.exit(quiet, 0, rank=1)
    world.engine.end_learner(world.run, 1, exit_code=0)
    world.step(quiet)
    assert world.engine.runs[world.run].learners[1].state is LearnerState.EXITED
    assert due_in(world, quiet) > 60
    assert look(world) == []
    world.phase(quiet, LearnerPhase.STORING, rank=0)
    assert due_in(world, quiet) <= 0, "reports make it due, as ever"
