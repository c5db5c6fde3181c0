"""A sweeper finds each duty for which there is something to do, and none otherwise."""

from __future__ import annotations

from sqlalchemy import func, update
from tests.workers.world import PROJECT, World

from weft_core.lifecycle.states import LearnerPhase
from weft_core.manifest import After
from weft_core.store.models import Job, Queue
from weft_core.store.predecessors import add_predecessors
from weft_core.store.queue import note_change
from weft_core.store.scope import Scope
from weft_workers.duties import OtherDuties, QueueDuties, find_other_duties, find_queue_duties
from weft_workers.reconcile.admit import admit, observe
from weft_workers.watching import EVERY, watch

NONE = OtherDuties(endings=False, deliveries=False, sweeps=False, predecessors=False, schedules=False)


def queue_duties(world: World) -> QueueDuties:
    return find_queue_duties(world.context.database, ["local"])[0]["local"]


def seconds_to_watch(world: World) -> float:
    return find_queue_duties(world.context.database, ["local"])[1]


def test_an_engine_of_which_nothing_is_known_has_all_duties(world: World) -> None:
    assert queue_duties(world) == QueueDuties(admit=True, observe=True, watch=True)


def test_the_duties_of_a_queue(world: World) -> None:
    for _ in range(20):
        world.submit()
    admit(world.context, "local")
    watch(world.context, "local")
    observe(world.context, "local")
    assert queue_duties(world) == QueueDuties(admit=False, observe=False, watch=False), "all was done just now"
    with world.transaction() as session:
        note_change(session, "elsewhere")
    assert not queue_duties(world).admit
    with world.transaction() as session:
        note_change(session, "local")
    assert queue_duties(world) == QueueDuties(admit=True, observe=False, watch=False)
    with world.transaction() as session:
        row = session.get_one(Queue, "local")
        row.next_look_at = row.next_watch_at = func.now()
    assert queue_duties(world) == QueueDuties(admit=True, observe=True, watch=False), "nothing runs"
    with world.transaction() as session:
        session.execute(update(Job).values(state="HALTED"))
    assert not queue_duties(world).observe, "nothing waits"


def test_an_engine_is_watched_while_something_runs_there(world: World) -> None:
    job = world.running()
    watch(world.context, "local")
    assert not queue_duties(world).watch, "it was done just now"
    assert 0 < seconds_to_watch(world) <= EVERY
    with world.transaction() as session:
        session.get_one(Queue, "local").next_watch_at = func.now()
    assert queue_duties(world).watch
    world.halt(job)
    world.phase(job, LearnerPhase.EXITED)
    world.step(job, 3)
    assert world.job(job).state == "HALTED"
    assert not queue_duties(world).watch, "nothing runs any more"
    assert seconds_to_watch(world) == float("inf")


def test_the_other_duties(world: World) -> None:
    def found() -> OtherDuties:
        return find_other_duties(world.context.database)[0]

    job = world.running()
    assert found() == NONE
    world.halt(job)
    world.engine.obeys = False
    world.step(job)
    assert found() == NONE._replace(endings=True)
    world.engine.obeys = True
    world.phase(job, LearnerPhase.EXITED)
    world.step(job, 3)
    assert world.job(job).state == "HALTED"
    assert found() == NONE

    waiting = world.submit()
    with world.transaction() as session:
        after = [After(job=job, on="ended")]
        add_predecessors(Scope(session, PROJECT), session.get_one(Job, waiting), after)
    assert found() == NONE._replace(predecessors=True)


def test_whether_the_next_duties_are_due_in_a_moment(world: World) -> None:
    def busy() -> bool:
        return find_other_duties(world.context.database)[1]

    assert not busy()
    job = world.submit()
    assert busy(), "it waits for room"
    world.halt(job)
    world.step(job, 3)
    assert world.job(job).state == "HALTED"
    assert not busy()
    job = world.running()
    assert not busy(), "it runs undisturbed"
    world.halt(job)
    world.engine.obeys = False
    world.step(job)
    assert busy(), "it ends"
    world.engine.obeys = True
    world.phase(job, LearnerPhase.EXITED)
    world.step(job, 3)
    assert world.job(job).state == "HALTED"
    assert not busy()
