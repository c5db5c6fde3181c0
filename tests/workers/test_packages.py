"""Package builds and the jobs that wait for them, against a real database and store."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select, update
from tests.workers.world import PROJECT, World

from weft_core.launch import Resources
from weft_core.lifecycle.states import LearnerPhase
from weft_core.manifest import Manifest
from weft_core.manifest.models import Framework
from weft_core.objects import overlay_key, results_prefix
from weft_core.packages import PackageRequest
from weft_core.requirement_files import CodeFiles
from weft_core.store.models import Attempt, Job, ModelVersion, Overlay
from weft_core.store.packages import attach_overlay, renew_overlay
from weft_core.store.scope import Scope
from weft_workers.context import Context
from weft_workers.housekeeping import Housekeeping
from weft_workers.reconcile import step

LOCK = "a" * 64
ARCHIVE = "b" * 64


def submit(world: World, *packages: str, repeats: str | None = None, **changes: Any) -> str:
    """A job with packages, as the API makes it."""
    job_id = world.submit(**changes)
    framework = Framework(
        name="python", version="3.11", launcher="none", command="true", image="python:3.11", packages=list(packages)
    )
    manifest = Manifest(name="job", engine="local", resources=Resources(1, 2, 1 << 30), framework=framework)
    with world.transaction() as session:
        scope = Scope(session, PROJECT)
        job = session.get_one(Job, job_id)
        repeated = session.get_one(Job, repeats) if repeats else None
        attach_overlay(scope, job, PackageRequest(manifest, CodeFiles(), None), repeated)
    return job_id


def overlay(world: World, job_id: str) -> Overlay:
    with world.transaction() as session:
        return session.scalars(select(Overlay).join(Job, Job.overlay_id == Overlay.id).where(Job.id == job_id)).one()


def build_of(world: World, job_id: str) -> str:
    return overlay(world, job_id).job_id


def builds(world: World) -> list[str]:
    with world.transaction() as session:
        return list(session.scalars(select(Job.id).where(Job.kind == "packages")))


def run_build(world: World, build: str, code: int = 0, **report: Any) -> None:
    """Take a build's learner to its end."""
    world.step(build)
    world.phase(build, LearnerPhase.PROCESSING)
    world.step(build)
    world.exit(build, code, **report)
    world.step(build, times=2)


def leave_results(world: World, build: str, **changes: Any) -> None:
    """Leave what the program of a build leaves."""
    lock = {
        "packages": [{"name": "einops", "version": "0.8.1", "source": "", "replaces": ""}],
        "lock_sha256": LOCK,
        "sha256": ARCHIVE,
        "size": 7,
        "known": False,
    }
    place = results_prefix(PROJECT, build)
    world.context.objects.put(f"{place}lock.json", json.dumps(lock | changes).encode())
    world.context.objects.put(f"{place}overlay.zip", b"archive")


def test_a_job_waits_for_its_packages_and_holds_no_room(world: World) -> None:
    job = submit(world, "einops", resources={"gpus": 4})
    build = build_of(world, job)
    world.step(job)
    assert (world.job(job).state, world.job(job).reason) == (
        "QUEUED",
        f"packages: job {build} is QUEUED: waiting for admission",
    )
    other = world.submit(resources={"gpus": 4})
    world.step(other)
    assert world.job(other).state == "PENDING", "the room is not kept for a job that can't start"
    world.exit(other, 0)
    world.step(other, times=2)
    leave_results(world, build)
    run_build(world, build)
    assert world.job(build).state == "COMPLETED"
    step(world.context, job)  # not made due by the test: the end of the build did that
    assert world.job(job).state == "PENDING"
    found = overlay(world, job)
    assert (found.state, found.lock_sha256, found.sha256, found.size) == ("READY", LOCK, ARCHIVE, 7)
    assert world.context.objects.get(overlay_key(PROJECT, ARCHIVE)) == b"archive"
    assert world.events(job, "packages")[0] == f"packages: job {build} builds them"
    assert world.events(job, "packages")[-1] == "packages: 1 package: einops 0.8.1"
    assert world.job(build).manifest["resources"]["gpus"] == 0


def test_the_build_shows_how_far_it_is(world: World) -> None:
    job = submit(world, "einops")
    build = build_of(world, job)
    world.step(build)
    world.phase(build, LearnerPhase.PROCESSING)
    world.step(build)
    world.write_log(build, 0, "Resolved 2 packages in 3ms\nDownloading einops (64 KiB)\n")
    world.step(job)
    assert world.job(job).reason == "packages: Downloading einops (64 KiB)"


def test_the_same_request_has_one_build(world: World) -> None:
    first, second = submit(world, "einops", "tqdm"), submit(world, "tqdm", "einops")
    assert build_of(world, first) == build_of(world, second)
    leave_results(world, build_of(world, first))
    run_build(world, build_of(world, first))
    for job in (first, second):
        world.step(job)
        assert world.job(job).state == "PENDING"
    third = submit(world, "einops", "tqdm")
    world.step(third)
    assert world.job(third).state == "PENDING"
    assert world.events(third, "packages") == ["packages: built before, 1 package: einops 0.8.1"]
    assert len(builds(world)) == 1
    assert build_of(world, submit(world, "tqdm")) != build_of(world, first)


def test_what_a_build_says_of_its_failure_fails_the_jobs_that_wait(world: World) -> None:
    jobs = [submit(world, "einops>=99"), submit(world, "einops>=99")]
    build = build_of(world, jobs[0])
    said = "Resolved 3 packages\npackages: No solution found.\nAsked for by framework.packages[0]: einops>=99"
    run_build(world, build, 1, lines=said)
    for job in jobs:
        world.step(job)
        found = world.job(job)
        assert (found.state, found.error_code, found.attempt) == ("FAILED", "C102", 0)
        assert found.reason == "packages: No solution found. Asked for by framework.packages[0]: einops>=99"
    # The next job with this request has another try, and so has a job that is opened again.
    later = submit(world, "einops>=99")
    assert build_of(world, later) != build
    failed = overlay(world, jobs[0]).id
    world.resume(jobs[0])
    with world.transaction() as session:
        renew_overlay(Scope(session, PROJECT), session.get_one(Job, jobs[0]))
    assert build_of(world, jobs[0]) == build_of(world, later)
    assert overlay(world, jobs[0]).id != failed


def test_a_build_whose_learner_is_lost_starts_again(world: World) -> None:
    job = submit(world, "einops")
    tried = []
    for _ in range(3):
        build = build_of(world, job)
        tried.append(build)
        world.step(build)
        world.phase(build, LearnerPhase.PROCESSING)
        world.step(build)
        lost = {"outcome": "LOST", "ended_at": func.now()}
        with world.transaction() as session:
            session.execute(update(Job).where(Job.id == build).values(state="FAILED", ended_at=func.now()))
            session.execute(update(Attempt).where(Attempt.job_id == build).values(**lost))
        world.step(job)
    assert len(set(tried)) == 3
    assert world.job(job).state == "FAILED", "not for ever"


def test_a_halted_or_deleted_build_is_a_failure_that_says_so(world: World) -> None:
    job = submit(world, "einops")
    build = build_of(world, job)
    world.halt(build)
    world.step(build)
    world.step(job)
    assert world.job(job).reason == f"packages: job {build}, which built them, was halted"


def test_a_build_can_not_pass_anything_off_as_a_lock(world: World) -> None:
    wrongs: list[dict[str, Any]] = [{"sha256": "../../etc"}, {"size": 8}, {"packages": "many"}, {"lock_sha256": ""}]
    for number, wrong in enumerate(wrongs):
        job = submit(world, f"package-{number}")
        leave_results(world, build_of(world, job), **wrong)
        run_build(world, build_of(world, job))
        world.step(job)
        assert world.job(job).state == "FAILED", wrong
        assert overlay(world, job).state == "FAILED"


def test_packages_that_the_image_has_need_no_archive(world: World) -> None:
    job = submit(world, "numpy")
    leave_results(world, build_of(world, job), packages=[], sha256=None, size=0)
    run_build(world, build_of(world, job))
    world.step(job)
    assert world.job(job).state == "PENDING"
    assert world.events(job, "packages")[-1] == "packages: the image has all of them"


def test_another_request_with_the_same_lock_shares_the_archive(world: World) -> None:
    first = submit(world, "einops")
    leave_results(world, build_of(world, first))
    run_build(world, build_of(world, first))
    world.step(first)
    second = submit(world, "einops>=0.8")
    known = json.loads(world.job(build_of(world, second)).manifest["env"]["WEFT_PACKAGES"])["known"]
    assert known == [LOCK]
    leave_results(world, build_of(world, second), known=True, sha256=None, size=0)
    run_build(world, build_of(world, second))
    world.step(second)
    assert (world.job(second).state, overlay(world, second).sha256) == ("PENDING", ARCHIVE)


def test_a_rerun_has_the_same_versions_however_old_they_are(world: World, context: Context) -> None:
    first = submit(world, "einops")
    leave_results(world, build_of(world, first))
    run_build(world, build_of(world, first))
    world.step(first)
    world.exit(first, 0)
    world.step(first, times=2)
    with world.transaction() as session:
        session.execute(update(Overlay).values(created_at=func.now() - timedelta(days=40)))
    assert overlay(world, submit(world, "einops", repeats=first)).id == overlay(world, first).id
    assert overlay(world, submit(world, "einops")).id != overlay(world, first).id, "a new job may have newer versions"
    assert overlay(world, submit(world, "tqdm", repeats=first)).id != overlay(world, first).id
    # Even when they were removed since: they are built again as they were.
    with world.transaction() as session:
        session.execute(update(Job).values(state="COMPLETED"))
        session.execute(update(Overlay).values(used_at=func.now() - timedelta(days=31)))
    assert Housekeeping(context).drop_unused_overlays() == [overlay(world, first).id]
    again = submit(world, "einops", repeats=first)
    request = json.loads(world.job(build_of(world, again)).manifest["env"]["WEFT_PACKAGES"])
    assert request["pins"] == overlay(world, first).lock


def test_what_nobody_uses_is_removed(world: World, context: Context) -> None:
    used, unused = submit(world, "einops"), submit(world, "tqdm")
    for job, digest in ((used, ARCHIVE), (unused, "c" * 64)):
        leave_results(world, build_of(world, job), sha256=digest, lock_sha256=digest)
        run_build(world, build_of(world, job))
        world.step(job)
    world.exit(unused, 0)
    world.step(unused, times=2)
    house = Housekeeping(context)
    assert (house.drop_old_builds(), house.drop_unused_overlays()) == ([], [])
    with world.transaction() as session:
        session.execute(update(Overlay).values(used_at=func.now() - timedelta(days=31)))
        session.execute(update(Job).where(Job.kind == "packages").values(ended_at=func.now() - timedelta(days=2)))
    assert house.drop_unused_overlays() == [overlay(world, unused).id]
    assert context.objects.head(overlay_key(PROJECT, "c" * 64)) is None
    assert context.objects.head(overlay_key(PROJECT, ARCHIVE)) is not None, "a job runs with it"
    gone = house.drop_old_builds()
    assert sorted(gone) == sorted(builds(world))
    for build in gone:
        world.step(build)
    assert builds(world) == []


def test_the_lineage_of_a_model_has_the_packages_of_its_job(world: World) -> None:
    job = submit(world, "einops", data_stores=[{"id": "s", "training_results": {"prefix": "", "model": "digits"}}])
    build = build_of(world, job)
    leave_results(world, build)
    run_build(world, build)
    world.step(job, 2)
    world.phase(job, LearnerPhase.PROCESSING)
    world.step(job)
    world.exit(job, 0)
    world.step(job, 3)
    with world.transaction() as session:
        packages = session.scalars(select(ModelVersion)).one().lineage["packages"]
    assert [(pin["name"], pin["version"]) for pin in packages["lock"]] == [("einops", "0.8.1")]
    assert packages["sha256"] == ARCHIVE
