"""Admission against a real database: one decision at a time, the right one next."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from sqlalchemy import update
from tests.workers.fake_engine import GIB, FakeEngine
from tests.workers.world import PROJECT, World

from weft_core.engine import Amounts, Node, Preparation, Taint
from weft_core.engine_settings import KubernetesSettings, LocalSettings
from weft_core.launch import Placement, Toleration
from weft_core.settings import ProfileSettings
from weft_core.store.models import Datastore, Queue, Secret
from weft_workers.observing import Ages, ObservedEngine
from weft_workers.reconcile import step
from weft_workers.reconcile.admit import admit, due, observe


def states(world: World, jobs: list[str]) -> list[str]:
    return [world.job(job_id).state for job_id in jobs]


def sweep(world: World) -> None:
    """What a sweeper does for the engine's queue, however long ago it did it last."""
    with world.transaction() as session:
        session.execute(update(Queue).values(next_look_at=None))
    observe(world.context, "local")
    if due(world.context, "local"):
        admit(world.context, "local")


def test_the_next_job_starts_when_room_comes_free(world: World) -> None:
    first = world.running(resources={"gpus": 3})
    second = world.submit(learners=2, resources={"gpus": 1})
    world.step(second)
    assert (world.job(second).state, world.job(second).reason) == ("QUEUED", "waiting for 2 GPUs: 1 of 4 free")
    assert world.events(second, "waiting") == ["waiting for 2 GPUs: 1 of 4 free"]
    world.exit(first, 0)
    world.step(first)
    step(world.context, second)  # not made due by the test: the end of the first did that
    assert world.job(second).state == "PENDING"


def test_a_waiting_job_has_no_steps_and_a_sweeper_looks_for_new_room(world: World) -> None:
    world.running(resources={"gpus": 4})
    jobs = [world.submit(resources={"gpus": 1}) for _ in range(2)]
    step(world.context, jobs[0])
    assert [world.job(job).next_step_at for job in jobs] == [None, None], "one pass is for both"
    versions = [world.job(job).version for job in jobs]
    sweep(world)
    for job in jobs:
        step(world.context, job)
    assert [world.job(job).version for job in jobs] == versions, "nothing has changed"
    world.engine.nodes += (Node("node-2", cpus=4, gpus=4, memory=16 * GIB),)
    sweep(world)
    assert states(world, jobs) == ["PENDING", "PENDING"]


def test_priority_then_age(world: World) -> None:
    busy = world.running(resources={"gpus": 4})
    old, new, urgent = (world.submit(resources={"gpus": 4}, priority=p) for p in (50, 50, 90))
    for job in (old, new, urgent):
        world.step(job)
    for expected in (urgent, old, new):
        world.exit(busy, 0)
        world.step(busy)
        for job in (new, old, urgent):
            step(world.context, job)
        assert world.job(expected).state == "PENDING"
        busy = expected
    assert [world.job(job_id).reason for job_id in (urgent, old)] == ["completed", "completed"]


def test_reasons_are_renewed_for_all_without_an_event_for_every_number(world: World) -> None:
    first = world.running(resources={"gpus": 4})
    jobs = [world.submit(resources={"gpus": 4}) for _ in range(3)]
    for job in jobs:
        world.step(job)
    assert world.job(jobs[2]).reason == "waiting for 4 GPUs: 0 of 4 free; queued behind 2 jobs"
    world.exit(first, 0)
    world.step(first)
    step(world.context, jobs[0])
    assert world.job(jobs[2]).reason == "waiting for 4 GPUs: 0 of 4 free; queued behind 1 job"
    assert len(world.events(jobs[2], "waiting")) == 1


def test_what_can_never_fit_fails_and_says_so(world: World) -> None:
    job = world.submit(resources={"cpus": 8})
    world.step(job)
    assert (world.job(job).state, world.job(job).error_code) == ("FAILED", "S100")
    assert world.job(job).reason == "can never fit: asks 8 CPUs a learner, the largest node of engine local has 4"


def test_what_does_not_fit_a_cluster_waits_for_nodes_and_lets_others_pass(world: World) -> None:
    world.engine.grows = True
    huge, small = world.submit(resources={"cpus": 8}), world.submit(resources={"cpus": 1})
    for job in (huge, small):
        world.step(job)
    assert states(world, [huge, small]) == ["QUEUED", "PENDING"]
    why = "does not fit: asks 8 CPUs a learner, the largest node of engine local has 4; waits for nodes to join"
    assert (world.job(huge).reason, world.events(huge, "waiting")) == (why, [why])
    world.engine.nodes += (Node("node-2", cpus=16, gpus=0, memory=16 * GIB),)
    world.step(huge)
    assert world.job(huge).state == "PENDING"
    assert world.attempts(huge)[0].resources["nodes"] == ["node-2"]


def test_what_others_use_makes_a_job_wait(world: World) -> None:
    (node,) = world.engine.nodes
    world.engine.nodes = (replace(node, busy=Amounts(cpus=3.5, gpus=4)),)
    job = world.submit(resources={"gpus": 1})
    world.step(job)
    assert (world.job(job).state, world.job(job).reason) == ("QUEUED", "waiting for 1 GPU: 0 of 4 free")
    world.engine.nodes = (node,)
    world.step(job)
    assert world.job(job).state == "PENDING"


def test_another_queue_admits(world: World) -> None:
    world.engine.queue = "Kueue's queue team-a"
    jobs = [world.submit(resources={"gpus": 4}) for _ in range(3)]
    for job in jobs:
        world.step(job)
    assert states(world, jobs) == ["PENDING"] * 3
    assert world.attempts(jobs[0])[0].resources["nodes"] == [""]


def test_learners_are_counted_where_the_engine_put_them(world: World) -> None:
    """Admission says where they would fit; a cluster's own scheduler decides."""
    world.engine.nodes = tuple(Node(f"node-{n}", cpus=4, gpus=2, memory=16 * GIB) for n in (1, 2))
    first = world.submit(resources={"gpus": 1})
    world.step(first)
    assert world.attempts(first)[0].resources["nodes"] == ["node-1"]
    run = world.engine.runs[world.run]
    world.engine.runs[world.run] = replace(run, learners={0: replace(run.learners[0], node="node-2")})
    world.step(first)
    second = world.submit(resources={"gpus": 2})
    world.step(second)
    assert world.attempts(second)[0].resources["nodes"] == ["node-1"]


def placed(world: World, **profile: Any) -> World:
    profiles = {"spot": ProfileSettings(cpus=2, **profile)}
    settings = world.context.settings.model_copy(update={"profiles": profiles})
    return World(replace(world.context, settings=settings), world.engine)


def test_a_profile_says_where_its_jobs_may_run(world: World) -> None:
    (node,) = world.engine.nodes
    world.engine.nodes = (
        node,
        replace(node, name="spot-1", labels={"pool": "spot"}, taints=(Taint("spot", "true"),)),
    )
    toleration = Toleration(key="spot", operator="Exists")
    there = placed(
        world,
        node_selector={"pool": "spot"},
        tolerations=[toleration],
        affinity={"podAffinity": {}},
        priority_class="low",
        image_pull_secrets=["registry"],
    )
    job = there.submit(profile="spot", resources={"cpus": 4})
    there.step(job)
    assert there.attempts(job)[0].resources["nodes"] == ["spot-1"]
    (spec,) = there.engine.launches
    assert spec.placement == Placement({"pool": "spot"}, (toleration,), {"podAffinity": {}}, "low", ("registry",))
    # A job in a profile counts against the profile's nodes even before its exact node is known.
    second = there.submit(profile="spot", resources={"cpus": 1})
    there.step(second)
    assert there.job(second).reason == "waiting for 1 CPU: 0 of 4 free"
    elsewhere = there.submit(resources={"cpus": 4})
    there.step(elsewhere)
    assert there.job(elsewhere).state == "PENDING"


def test_a_profile_that_is_gone_leaves_its_jobs_free(world: World) -> None:
    job = world.submit(profile="gone")
    world.step(job)
    assert world.job(job).state == "PENDING"
    assert world.engine.launches[0].placement == Placement()


def test_what_an_engine_is_told_of_a_job(world: World) -> None:
    with world.transaction() as session:
        session.add(Secret(id="sec-1", project_id=PROJECT, name="cos", ciphertext=b""))
        session.flush()
        for name in ("kept", "other"):
            session.add(
                Datastore(
                    id=f"ds-{name}",
                    project_id=PROJECT,
                    name=name,
                    endpoint=f"https://{name}.example",
                    secret_id="sec-1",
                )
            )
    stores = [
        {"id": "a", "connection": {"auth_url": "https://own.example"}},
        {"id": "b", "datastore": "kept"},
        {"id": "c", "datastore": "kept"},
        {"id": "d", "datastore": "not there any more"},
    ]
    api = world.context.settings.api.model_copy(update={"public_url": "http://public"})
    far = KubernetesSettings(api_url="http://cluster-internal")
    engines = {"local": LocalSettings(), "far": far, "same": KubernetesSettings()}
    settings = world.context.settings.model_copy(update={"engines": engines, "api": api})
    launches = world.engine.launches
    observed = {name: ObservedEngine(FakeEngine(name, launches=launches), "local", Ages(0, 0, 0)) for name in engines}
    told = World(replace(world.context, settings=settings, engines=observed), world.engine)
    for engine in engines:
        told.step(told.submit(engine=engine, name="mnist", data_stores=stores, repo={"url": "https://git.example/x"}))
    assert [launched.api_url for launched in told.engine.launches] == [
        "http://public",
        "http://cluster-internal",
        "http://public",
    ]
    spec = told.engine.launches[0]
    assert (spec.project, spec.job_name, spec.grace) == ("lab", "mnist", settings.timings.grace)
    named = ("https://git.example/x", "https://kept.example", "https://own.example")
    assert spec.endpoints == named
    assert spec.own_endpoints == settings.own_urls()
    assert spec.own_endpoints[0] == settings.s3.endpoint
    assert spec.token not in repr(spec)


def test_what_ran_before_waits_for_its_node_to_come_back(world: World) -> None:
    job = world.running(retries=1, resources={"gpus": 4})
    world.exit(job, 3)
    world.engine.nodes = (replace(world.engine.nodes[0], gpus=2),)
    world.step(job)
    world.pass_time(60)
    world.step(job)
    assert world.job(job).state == "QUEUED"
    assert "can never fit: asks 4 GPUs" in world.job(job).reason


def test_an_engine_that_does_not_answer_keeps_jobs_waiting(world: World) -> None:
    world.engine.unreachable = "connection refused"
    job = world.submit()
    world.step(job)
    assert world.job(job).reason == "waiting for engine local, which does not answer: connection refused"
    world.engine.unreachable = ""
    world.step(job)
    assert world.job(job).state == "PENDING"


def test_a_job_in_its_pause_after_a_failure_takes_nobodys_place(world: World) -> None:
    failing = world.running(retries=3, priority=90, resources={"gpus": 4})
    other = world.submit(resources={"gpus": 4})
    world.step(other)
    world.exit(failing, 3)
    world.step(failing)
    world.pass_time(-60)
    world.step(other)
    assert states(world, [failing, other]) == ["QUEUED", "PENDING"]


def test_many_workers_at_once_never_give_out_more_than_there_is(world: World) -> None:
    jobs = [world.submit(resources={"gpus": 1}) for _ in range(10)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda job: step(world.context, job), jobs * 3))
    assert sorted(states(world, jobs)) == ["PENDING"] * 4 + ["QUEUED"] * 6
    assert sorted(states(world, jobs[:4])) == ["PENDING"] * 4, "the oldest first"
    assert len(world.engine.created) == len(set(world.engine.created)) == 4


# --- images that are still being made ---


def test_jobs_that_wait_for_an_image_hold_no_room(world: World) -> None:
    world.engine.images["horovod:1"] = Preparation("building horovod: 10 %")
    slow = [world.submit(resources={"cpus": 2}, image="horovod:1", priority=90) for _ in range(2)]
    ready = world.submit(resources={"cpus": 4})
    for job in (*slow, ready):
        world.step(job)
    assert states(world, [*slow, ready]) == ["QUEUED", "QUEUED", "PENDING"]
    assert [world.job(job_id).reason for job_id in slow] == ["building horovod: 10 %"] * 2
    assert world.engine.wanted == {"horovod:1"}
    world.engine.images["horovod:1"] = Preparation("building horovod: 90 %")
    sweep(world)
    assert [world.events(job_id, "image") for job_id in slow] == [
        ["building horovod: 10 %", "building horovod: 90 %"]
    ] * 2
    world.exit(ready, 0)
    world.step(ready)
    del world.engine.images["horovod:1"]
    sweep(world)
    assert states(world, slow) == ["PENDING", "PENDING"]


def test_an_image_that_can_not_be_made_fails_every_job_that_waits_for_it(world: World) -> None:
    world.engine.images["horovod:1"] = Preparation("building horovod: 10 %")
    jobs = [world.submit(image="horovod:1") for _ in range(2)]
    other = world.submit()
    for job in (*jobs, other):
        world.step(job)
    world.engine.images["horovod:1"] = Preparation(failed="environment horovod:1 could not be built: no compiler")
    world.step(jobs[0])
    step(world.context, jobs[1])
    assert states(world, [*jobs, other]) == ["FAILED", "FAILED", "PENDING"]
    assert {world.job(job_id).reason for job_id in jobs} == {"environment horovod:1 could not be built: no compiler"}
    assert {world.job(job_id).error_code for job_id in jobs} == {"S101"}


def test_nobody_waits_for_an_image_any_more_when_the_last_job_is_halted(world: World) -> None:
    world.engine.images["horovod:1"] = Preparation("building horovod: 10 %")
    jobs = [world.submit(image="horovod:1") for _ in range(2)]
    for job in jobs:
        world.step(job)
    for job, wanted in zip(jobs, ({"horovod:1"}, set()), strict=True):
        world.halt(job)
        world.step(job)
        assert world.engine.wanted == wanted
    assert states(world, jobs) == ["HALTED", "HALTED"]


def test_a_job_that_can_never_fit_does_not_wait_for_its_image(world: World) -> None:
    world.engine.images["horovod:1"] = Preparation("building horovod: 10 %")
    job = world.submit(resources={"cpus": 8}, image="horovod:1")
    world.step(job)
    assert (world.job(job).state, world.job(job).error_code) == ("FAILED", "S100")
