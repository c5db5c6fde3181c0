from __future__ import annotations

import json
from dataclasses import replace

from sqlalchemy import func, select, text
from tests.workers.fake_engine import FakeEngine
from tests.workers.world import PROJECT, World

from weft_core.engine import Amounts, Capacity, LearnerObservation, LearnerState, Node, Observation, Taint
from weft_core.engine_settings import LocalSettings
from weft_core.store.models import EngineStatus, IdempotencyKey, QueueChange, SignInLink, Token, User
from weft_workers.context import Context
from weft_workers.housekeeping import Housekeeping, describe
from weft_workers.observing import Ages, ObservedEngine


def row(world: World) -> EngineStatus:
    with world.transaction() as session:
        return session.get_one(EngineStatus, "local")


def test_what_an_engine_has_and_whether_it_answers(world: World, context: Context) -> None:
    house, engine = Housekeeping(context), context.engines["local"]
    world.engine.unreachable = "connection refused"
    house.check(engine)
    first = row(world)
    assert (first.error, first.capacity, first.seen_at) == ("connection refused", None, None)
    house.check(engine)
    assert row(world).unreachable_since == first.unreachable_since is not None, "since the first failure"
    world.engine.unreachable = ""
    house.check(engine)
    answered = row(world)
    assert (answered.error, answered.unreachable_since) == (None, None)
    assert answered.seen_at is not None
    assert answered.capacity == {
        "cpus": 4,
        "gpus": 4,
        "memory": 16 << 30,
        "queue": "",
        "nodes": [{"name": "node-1", "cpus": 4, "gpus": 4, "memory": 16 << 30, "gpu_type": "a100"}],
    }
    world.engine.unreachable = "gone again"
    house.check(engine)
    assert row(world).capacity == answered.capacity, "the last that is known"


def test_what_is_kept_of_nodes() -> None:
    labels = {f"label-{n}": "x" * 60 for n in range(50)}
    plain = Node("n1", cpus=8, gpus=0, memory=32 << 30, labels=labels)
    used = replace(plain, name="n2", gpus=2, gpu_type="a100", busy=Amounts(cpus=1.5, memory=1 << 30), extra={"rdma": 1})
    away = replace(plain, name="n3", ready=False, taints=[Taint("spot"), Taint("gpu", "true")])
    maybe = replace(plain, name="e-0-0", potential=True)
    kept = describe(Capacity((plain, used, away, maybe), queue="Kueue's queue a", grows=True))
    assert kept == {
        "cpus": 16,
        "gpus": 2,
        "memory": 64 << 30,
        "queue": "Kueue's queue a",
        "nodes": [
            {"name": "n1", "cpus": 8, "gpus": 0, "memory": 32 << 30},
            {"name": "n2", "cpus": 8, "gpus": 2, "memory": 32 << 30, "gpu_type": "a100", "extra": {"rdma": 1},
             "busy": {"cpus": 1.5, "memory": 1 << 30}},
            {"name": "n3", "cpus": 8, "gpus": 0, "memory": 32 << 30, "taints": ["spot", "gpu=true"], "not_ready": True},
            {"name": "e-0-0", "cpus": 8, "gpus": 0, "memory": 32 << 30, "potential": True},
        ],
    }  # fmt: skip
    assert len(json.dumps(describe(Capacity((used,) * 500)))) < 100_000
    assert describe(Capacity((), images=frozenset({"b:1", "a:1"})))["images"] == ["a:1", "b:1"]


def test_engines_that_left_the_settings_are_forgotten(world: World, context: Context) -> None:
    settings = context.settings.model_copy(update={"engines": {"old": LocalSettings(), "local": LocalSettings()}})
    old = ObservedEngine(FakeEngine("old", runs=world.engine.runs), "local", Ages(0, 0, 0))
    before = World(replace(context, settings=settings, engines={**context.engines, "old": old}), world.engine)
    job = before.running(engine="old")
    with world.transaction() as session:
        session.add(EngineStatus(name="never-used", type="ray"))
    house = Housekeeping(context)
    house.check(context.engines["local"])
    assert house.drop_old_engines() == ["never-used"], "the other's attempt is still open"
    before.exit(job)
    before.step(job)
    assert before.job(job).state == "COMPLETED"
    house.tidy()
    with world.transaction() as session:
        assert list(session.scalars(select(EngineStatus.name))) == ["local"]
        assert session.scalar(select(func.count()).select_from(QueueChange)) == 0


def test_orphans_are_stopped_after_a_grace_and_nothing_else_is(world: World, context: Context) -> None:
    house, engine = Housekeeping(context), context.engines["local"]
    world.running()
    mine = world.run
    world.engine.runs["weft-job-old-1"] = Observation(
        "weft-job-old-1", {0: LearnerObservation(0, LearnerState.RUNNING)}
    )
    house.check(engine)
    assert world.engine.stops == []
    house.orphans = {key: since - 61 for key, since in house.orphans.items()}
    house.check(engine)
    assert list(world.engine.runs) == [mine]
    house.check(engine)
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


def test_links_of_yesterday_are_dropped(world: World, context: Context) -> None:
    with world.transaction() as session:
        user_id = session.scalars(select(User.id)).one()
        session.add(Token(id="tok-1", project_id=PROJECT, user_id=user_id, name="x", prefix="x", sha256="x"))
        session.flush()
        for name, hours in (("old", 25), ("expired", 23), ("good", -1)):
            at = func.now() - text(f"interval '{hours} hours'")
            session.add(SignInLink(sha256=name, project_id=PROJECT, token_id="tok-1", expires_at=at))
    house = Housekeeping(context)
    assert [house.drop_old_links(), house.drop_old_links()] == [1, 0]
    with world.transaction() as session:
        assert set(session.scalars(select(SignInLink.sha256))) == {"expired", "good"}


def test_sessions_that_have_ended_are_dropped(world: World, context: Context) -> None:
    with world.transaction() as session:
        user_id = session.scalars(select(User.id)).first()
        for kind in ("api", "browser"):
            for name, hours, revoked in (("over", -1, None), ("on", 1, None), ("revoked", 1, func.now())):
                session.add(
                    Token(
                        id=f"tok-{kind}-{name}",
                        project_id=PROJECT,
                        user_id=user_id,
                        name=name,
                        kind=kind,
                        prefix="x",
                        sha256=f"{kind} {name}",
                        expires_at=func.now() + text(f"interval '{hours} hours'"),
                        revoked_at=revoked,
                    )
                )
    house = Housekeeping(context)
    assert [house.drop_old_sessions(), house.drop_old_sessions()] == [2, 0]
    with world.transaction() as session:
        left = set(session.scalars(select(Token.id)))
    assert left >= {"tok-browser-on", "tok-api-over", "tok-api-on", "tok-api-revoked"}
