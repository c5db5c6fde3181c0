"""The workers' part in the registry: results become a version with the job's end, and outlive the job."""

from __future__ import annotations

from sqlalchemy import select
from tests.workers.world import PROJECT, World

from weft_core.ids import new_id
from weft_core.objects import results_prefix
from weft_core.store.models import Datastore, Job, ModelVersion, Secret

DIGITS = [{"id": "s", "training_results": {"prefix": "", "model": "digits"}}]


def versions(world: World) -> list[ModelVersion]:
    with world.transaction() as session:
        return list(session.scalars(select(ModelVersion).order_by(ModelVersion.number)))


def test_only_a_job_that_completes_becomes_a_version_and_only_one(world: World) -> None:
    job = world.running(data_stores=DIGITS, retries=1)
    world.exit(job, 1)
    world.step(job)
    assert (world.job(job).state, versions(world)) == ("QUEUED", [])
    world.pass_time(60)
    world.step(job)
    world.exit(job, 0)
    world.step(job, 3)
    assert world.job(job).state == "COMPLETED"
    [version] = versions(world)
    assert (version.number, version.job_id) == (1, job)
    assert (version.lineage["run"]["attempt"], version.lineage["run"]["failures"]) == (2, 1)
    assert world.events(job, "model") == ["registered as digits@1"]
    failed = world.running(data_stores=DIGITS)
    world.exit(failed, 1)
    world.step(failed, 2)
    assert world.job(failed).state == "FAILED"
    assert len(versions(world)) == 1


def test_results_that_are_a_version_outlive_their_job(world: World) -> None:
    job, other = world.running(data_stores=DIGITS), world.running()
    for job_id in (job, other):
        world.context.objects.put(results_prefix(PROJECT, job_id) + "model", b"weights")
        world.leave_exit_report(job_id, 0, 0)
        world.exit(job_id, 0)
        world.step(job_id, 2)
        world.delete(job_id)
        world.step(job_id)
        assert world.find(job_id) is None
    left = [stored.key for stored in world.context.objects.objects(f"jobs/{PROJECT}/")]
    assert left == [results_prefix(PROJECT, job) + "model"]


def test_learners_are_let_through_to_the_store_that_their_model_is_in(world: World) -> None:
    with world.transaction() as session:
        session.add(secret := Secret(id=new_id("sec"), project_id=PROJECT, name="datastore/cos", ciphertext=b""))
        session.flush()
        session.add(
            Datastore(id=new_id("ds"), project_id=PROJECT, name="cos", endpoint="http://cos", secret_id=secret.id)
        )
    stores = [{"id": "s", "datastore": "cos", "training_results": {"container": "c", "prefix": "", "model": "m"}}]
    job = world.running(data_stores=stores)
    world.exit(job, 0)
    world.step(job, 2)
    [version] = versions(world)
    child = world.submit()
    with world.transaction() as session:
        session.get_one(Job, child).pretrained_id = version.id
    world.step(child)
    assert "http://cos" in world.engine.launches[-1].endpoints
