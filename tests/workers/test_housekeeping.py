from __future__ import annotations

from sqlalchemy import func, text
from tests.workers.world import PROJECT, World

from weft_core.engine import LearnerObservation, LearnerState, Observation
from weft_core.store.models import EngineStatus, IdempotencyKey
from weft_workers.context import Context
from weft_workers.housekeeping import Housekeeping


def row(world: World) -> EngineStatus:
    with world.transaction() as session:
        return session.get_one(EngineStatus, "local")


def test_what_an_engine_has_and_whether_it_answers(world: World, context: Context) -> None:
    house, engine = Housekeeping(context), context.engines["local"]
    world.engine.unreachable = "connection refused"
    house.round(engine)
    first = row(world)
    assert (first.error, first.capacity, first.seen_at) == ("connection refused", None, None)
    house.round(engine)
    assert row(world).unreachable_since == first.unreachable_since is not None, "since the first failure"
    world.engine.unreachable = ""
    house.round(engine)
    answered = row(world)
    assert (answered.error, answered.unreachable_since) == (None, None)
    assert answered.seen_at is not None
    assert answered.capacity == {
        "cpus": 4,
        "gpus": 4,
        "memory": 16 << 30,
        "nodes": [{"name": "node-1", "cpus": 4, "gpus": 4, "memory": 16 << 30, "gpu_type": "a100"}],
    }
    world.engine.unreachable = "gone again"
    house.round(engine)
    assert row(world).capacity == answered.capacity, "the last that is known"


def test_orphans_are_stopped_after_a_grace_and_nothing_else_is(world: World, context: Context) -> None:
    house, engine = Housekeeping(context), context.engines["local"]
    world.running()
    mine = world.run
    world.engine.runs["weft-job-old-1"] = Observation(
        "weft-job-old-1", {0: LearnerObservation(0, LearnerState.RUNNING)}
    )
    house.round(engine)
    assert world.engine.stops == []
    house.orphans = {key: since - 61 for key, since in house.orphans.items()}
    house.round(engine)
    assert list(world.engine.runs) == [mine]
    house.round(engine)
    assert house.orphans == {}, "what is gone is forgotten"


def test_old_keys_are_dropped(world: World, context: Context) -> None:
    with world.transaction() as session:
        for key, hours in (("old", 25), ("new", 23)):
            at = func.now() - text(f"interval '{hours} hours'")
            session.add(
                IdempotencyKey(
                    project_id=PROJECT, key=key, route="POST /jobs", body_sha256="x", resource_id="job-1", created_at=at
                )
            )
    house = Housekeeping(context)
    assert [house.drop_old_keys(), house.drop_old_keys()] == [1, 0]
