"""A job's whole life, stepped by hand: real database and store, and a scripted engine."""

from __future__ import annotations

from dataclasses import replace

from pydantic import SecretStr
from sqlalchemy import select, text
from tests.workers.world import PROJECT, World

from weft_core.lifecycle.states import LearnerPhase
from weft_core.objects import Objects
from weft_core.settings import S3Settings
from weft_core.store.backups import hold_deletions
from weft_core.store.models import Secret
from weft_workers.context import Context


def test_a_job_runs_to_its_end(world: World) -> None:
    job = world.submit(learners=2)
    world.step(job)
    assert world.job(job).state == "PENDING"
    (attempt,) = world.attempts(job)
    assert attempt.launched_at is not None
    assert world.engine.created == [attempt.run_name] == [f"weft-{job}-1"]
    (spec,) = world.engine.launches
    assert (spec.learners, spec.attempt, spec.installation) == (2, 1, "inst-test")

    world.phase(job, LearnerPhase.STARTED, rank=0)
    world.step(job)
    assert world.job(job).state == "DOWNLOADING"
    world.phase(job, LearnerPhase.PROCESSING, rank=0)
    world.step(job)
    assert world.job(job).state == "DOWNLOADING", "the gang is where its last learner is"
    world.phase(job, LearnerPhase.PROCESSING, rank=1)
    world.step(job)
    assert world.job(job).state == "PROCESSING"
    world.phase(job, LearnerPhase.STORING)
    world.step(job)
    world.exit(job, 0)
    world.step(job)

    done = world.job(job)
    assert (done.state, done.reason, done.next_step_at, done.lease_token) == ("COMPLETED", "completed", None, None)
    assert world.states(job) == ["PENDING", "DOWNLOADING", "PROCESSING", "STORING", "COMPLETED"]
    (attempt,) = world.attempts(job)
    assert (attempt.outcome, attempt.exit_code) == ("SUCCEEDED", 0)
    assert attempt.ended_at is not None
    assert world.engine.runs == {}


def test_fast_learners_may_skip_states(world: World) -> None:
    job = world.submit()
    world.step(job)
    world.exit(job, 0)
    world.step(job)
    assert world.states(job) == ["PENDING", "COMPLETED"]


def test_success_waits_until_the_engine_confirms_that_all_are_gone(world: World) -> None:
    world.engine.obeys = False
    job = world.running()
    world.exit(job, 0)
    world.step(job)
    assert world.job(job).state != "COMPLETED"
    assert world.attempts(job)[0].outcome == "SUCCEEDED"
    world.engine.end_learner(world.run, 0, exit_code=0)
    world.step(job)
    assert world.job(job).state == "COMPLETED"


def test_a_halt_gives_learners_the_grace_and_ends_when_they_are_gone(world: World) -> None:
    world.engine.obeys = False
    job = world.running()
    world.halt(job)
    world.step(job)
    (attempt,) = world.attempts(job)
    assert (attempt.outcome, attempt.grace_seconds) == ("HALTED", 120)
    assert attempt.stop_requested_at is not None, "heartbeats answer stop from here on"
    name, grace = world.engine.stops[0]
    assert name == attempt.run_name
    assert 100 < grace <= 120

    world.pass_time(100)
    world.step(job)
    assert world.engine.stops[-1][1] <= 20, "a repeated stop does not start the grace anew"
    assert world.job(job).state == "PROCESSING"

    world.engine.end_learner(world.run, 0, exit_code=143)
    world.step(job)
    assert (world.job(job).state, world.job(job).reason) == ("HALTED", "halted by request")
    assert world.job(job).next_step_at is None


def test_a_queued_job_is_halted_at_once_and_resumed_with_the_next_attempt(world: World) -> None:
    job = world.running()
    world.halt(job)
    world.step(job)
    assert world.job(job).state == "HALTED"
    world.resume(job)
    world.engine.unreachable = "connection refused"
    world.step(job)
    assert world.job(job).state == "QUEUED"
    world.halt(job)
    world.step(job)
    assert world.job(job).state == "HALTED"
    assert len(world.attempts(job)) == 1
    world.engine.unreachable = ""
    world.resume(job)
    world.step(job)
    assert world.job(job).state == "PENDING"
    assert [attempt.outcome for attempt in world.attempts(job)] == ["HALTED", None]
    assert world.engine.created == [f"weft-{job}-1", f"weft-{job}-2"]


def test_the_grace_that_the_user_asked_for_is_used(world: World) -> None:
    job = world.running()
    with world.transaction() as session:
        session.execute(text("update attempts set grace_seconds = 7"))
    world.halt(job)
    world.step(job)
    assert world.engine.stops[0][1] <= 7


def test_delete_stops_the_job_and_removes_what_is_its_own(world: World) -> None:
    job, other = world.running(), world.submit()
    put = world.context.objects.put
    put(f"jobs/{PROJECT}/{job}/results/model.pt", b"x")
    put(f"jobs/{PROJECT}/{other}/results/model.pt", b"y")
    with world.transaction() as session:
        session.add(Secret(id="sec-1", project_id=PROJECT, name=f"{job}/cos", job_id=job, ciphertext=b"c"))
    world.engine.obeys = False
    world.delete(job)
    world.step(job)
    assert world.job(job).state == "PROCESSING"
    assert world.engine.stops[0][1] <= 10, "nothing is left to save"

    world.engine.runs.clear()
    world.step(job)
    assert world.find(job) is None
    assert [stored.key for stored in world.context.objects.objects(f"jobs/{PROJECT}/")] == [
        f"jobs/{PROJECT}/{other}/results/model.pt"
    ]
    with world.transaction() as session:
        assert session.scalars(select(Secret)).all() == []


def test_delete_of_an_ended_and_of_a_queued_job(world: World) -> None:
    ended, queued = world.running(), world.submit()
    world.exit(ended, 0)
    world.step(ended)
    for job in (ended, queued):
        world.delete(job)
        world.step(job)
        assert world.find(job) is None
    assert world.engine.created == [f"weft-{ended}-1"]


def test_delete_waits_for_a_store_that_is_down(world: World, context: Context) -> None:
    job = world.submit()
    nowhere = S3Settings(endpoint="http://127.0.0.1:9", access_key="k", secret_key=SecretStr("s"))
    world.context = replace(context, objects=Objects(nowhere))
    world.delete(job)
    world.step(job)
    assert "can't delete the job's files" in (world.job(job).condition or "")
    world.context = context
    world.step(job)
    assert world.find(job) is None


def test_delete_waits_for_a_backup_to_end(world: World, context: Context) -> None:
    job = world.submit()
    code = f"jobs/{PROJECT}/{job}/results/model.pt"
    context.objects.put(code, b"x")
    world.delete(job)
    with hold_deletions(context.settings.database_url.get_secret_value().replace("+psycopg", "")):
        world.step(job)
        assert "a backup is being made" in (world.job(job).condition or "")
        assert context.objects.head(code), "the backup may name it"
    world.step(job)
    assert world.find(job) is None
    assert context.objects.head(code) is None


def test_a_delete_shortens_a_halt_that_is_under_way(world: World) -> None:
    world.engine.obeys = False
    job = world.running()
    world.halt(job)
    world.step(job)
    world.delete(job)
    world.step(job)
    assert world.engine.stops[-1][1] <= 10


def test_nobody_asks_for_more_steps_of_an_ended_job(world: World) -> None:
    job = world.running()
    world.exit(job, 0)
    world.step(job)
    before = world.job(job).version
    world.step(job)
    assert world.job(job).version == before
