"""Elastic attempts in the reconciler: they go on while enough learners live, and get more when there is room."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, update
from tests.workers.fake_engine import GIB
from tests.workers.world import PROJECT, World

from weft_core.engine import LaunchRefused, Node
from weft_core.lifecycle.states import LearnerPhase
from weft_core.store.models import Job, Learner, Round


def elastic(world: World, least: int = 1, most: int = 2, learners: int = 2, **changes: Any) -> str:
    """A job that trains in its first round."""
    job_id = world.running(elastic={"min": least, "max": most}, learners=learners, **changes)
    close_round(world, job_id, 1, *range(learners))
    return job_id


def attempt_id(world: World, job_id: str) -> str:
    return world.attempts(job_id)[-1].id


def close_round(world: World, job_id: str, n: int, *members: int, restart: bool = True) -> None:
    """As the API does when all have arrived."""
    attempt = attempt_id(world, job_id)
    with world.transaction() as session:
        session.add(
            Round(
                attempt_id=attempt, n=n, project_id=PROJECT, members=list(members), restart=restart, reason="",
                closed_at=func.now(),
            )
        )  # fmt: skip
        here = Learner.rank.in_(members)
        session.execute(update(Learner).where(Learner.attempt_id == attempt, here).values(arrived=n))


def breaks(world: World, job_id: str, rank: int, code: int, n: int = 1, reason: str = "exit code 1") -> None:
    """Its agent says that the workers have failed."""
    with world.transaction() as session:
        row = session.get_one(Learner, (attempt_id(world, job_id), rank))
        row.broken, row.broken_at, row.exit_code, row.exit_reason = n, func.now(), code, reason
        row.heartbeat_at = func.now()


def lost(world: World, job_id: str) -> dict[int, str]:
    return {
        learner.rank: learner.left_reason or "" for learner in world.learners(job_id) if learner.left_at is not None
    }


def test_a_killed_learner_is_lost_and_the_others_go_on(world: World) -> None:
    job_id = elastic(world)
    world.engine.end_learner(world.run, 1, exit_code=-9, reason="killed by signal 9 (SIGKILL)")
    world.pass_time(3)
    world.step(job_id, 2)
    assert lost(world, job_id) == {1: "killed by signal 9 (SIGKILL)"}
    words = "learner 2 was lost (killed by signal 9 (SIGKILL)): training goes on with 1 of 2"
    assert world.events(job_id, "elastic") == [words]
    assert world.job(job_id).state == "PROCESSING"
    assert world.attempts(job_id)[0].outcome is None


def test_two_losses_at_once_are_one_decision(world: World) -> None:
    job_id = elastic(world, least=2, most=4, learners=4)
    for rank in (0, 3):
        world.exit(job_id, 1, rank, "exit code 1")
    world.step(job_id)
    assert set(lost(world, job_id)) == {0, 3}
    assert world.events(job_id, "elastic")[-1].endswith("training goes on with 2 of 4")


def test_with_fewer_than_the_least_the_gang_fails_and_is_retried(world: World) -> None:
    job_id = elastic(world, least=2, retries=1)
    world.exit(job_id, 3, 1, "exit code 3")
    world.step(job_id)
    assert world.attempts(job_id)[0].outcome == "FAILED"
    job = world.job(job_id)
    assert (job.state, job.reason.partition("\n")[0]) == ("QUEUED", "retry 1 of 1 after: learner 2: exit code 3")


def test_what_the_platform_takes_back_is_a_loss_as_well(world: World) -> None:
    job_id = elastic(world)
    world.engine.end_learner(world.run, 0, interrupted=True, reason="preempted")
    world.pass_time(3)
    world.step(job_id, 2)
    assert lost(world, job_id) == {0: "interrupted: preempted"}


def test_who_was_killed_is_to_blame_and_who_lost_its_peer_is_not(world: World) -> None:
    job_id = elastic(world)
    breaks(world, job_id, 0, 1)
    breaks(world, job_id, 1, 137, reason="killed by signal 9 (SIGKILL)")
    world.step(job_id)
    assert lost(world, job_id) == {1: "killed by signal 9 (SIGKILL)"}
    world.pass_time(30)
    world.phase(job_id, LearnerPhase.PROCESSING)  # heard again
    world.step(job_id, 2)
    assert set(lost(world, job_id)) == {1}, "the other one's failure has followed from that"


def test_a_failure_alone_waits_for_the_fate_of_the_others(world: World) -> None:
    job_id = elastic(world)
    breaks(world, job_id, 0, 1)
    world.step(job_id)
    assert not lost(world, job_id), "perhaps the other one is dead, and this its consequence"
    world.engine.end_learner(world.run, 1, exit_code=-9, reason="killed by signal 9 (SIGKILL)")
    world.pass_time(3)
    world.step(job_id, 2)
    assert set(lost(world, job_id)) == {1}


def test_of_failures_that_nothing_explains_the_first_is_to_blame(world: World) -> None:
    job_id = elastic(world)
    breaks(world, job_id, 1, 1, reason="exit code 1")
    world.pass_time(1)
    breaks(world, job_id, 0, 1)
    world.step(job_id)
    assert lost(world, job_id) == {1: "exit code 1"}


def test_training_that_ends_is_not_begun_again(world: World) -> None:
    job_id = elastic(world, most=3)
    world.exit(job_id, 0, 1)
    world.pass_time(1000)
    world.phase(job_id, LearnerPhase.PROCESSING, 0)
    world.step(job_id, 2)
    assert len(world.learners(job_id)) == 2, "no more learners for a job that is ending"
    world.exit(job_id, 1, 0, "exit code 1")
    world.step(job_id)
    assert world.attempts(job_id)[0].outcome == "FAILED", "the leader's results are lost with it"


def test_success_counts_those_that_are_left(world: World) -> None:
    job_id = elastic(world)
    world.exit(job_id, 1, 1, "exit code 1")
    world.step(job_id)
    world.exit(job_id, 0, 0)
    world.step(job_id, 3)
    assert world.job(job_id).state == "COMPLETED"


def test_more_learners_join_after_the_cool_down_with_fresh_numbers(world: World) -> None:
    job_id = elastic(world)
    world.exit(job_id, 137, 1, "killed by signal 9 (SIGKILL)")
    world.step(job_id, 2)
    assert len(world.learners(job_id)) == 2, "not at once"
    world.pass_time(61)
    world.phase(job_id, LearnerPhase.PROCESSING, 0)
    world.step(job_id, 3)
    assert [learner.rank for learner in world.learners(job_id)] == [0, 1, 2]
    assert set(world.engine.runs[world.run].learners) == {0, 1, 2}
    assert "there is room for more: starting learner 3" in world.events(job_id, "elastic")
    assert world.attempts(job_id)[0].resources["learners"] == 3


def test_nobody_grows_while_another_job_waits(world: World) -> None:
    job_id = elastic(world, most=4)
    world.submit(resources={"cpus": 3})
    world.pass_time(1000)
    world.phase(job_id, LearnerPhase.PROCESSING)
    world.step(job_id, 3)
    assert len(world.learners(job_id)) == 2


def test_a_lost_learners_room_is_free_for_others(world: World) -> None:
    job_id = elastic(world, learners=4, most=4)
    other = world.submit()
    world.step(other)
    assert world.job(other).state == "QUEUED"
    world.exit(job_id, 1, 3, "exit code 1")
    world.step(job_id, 2)
    world.step(other)
    assert world.job(other).state == "PENDING"


def test_it_starts_with_what_fits_and_waits_for_the_least(world: World) -> None:
    world.engine.nodes = (Node("small", cpus=2, gpus=0, memory=16 * GIB),)
    job_id = world.submit(elastic={"min": 2, "max": 8}, learners=4)
    world.step(job_id, 2)
    assert world.engine.launches[0].learners == len(world.learners(job_id)) == 2
    assert "more will join when there is room" in " ".join(world.events(job_id, "state"))
    later_job = world.submit(elastic={"min": 2, "max": 8}, learners=4)
    world.step(later_job)
    assert world.job(later_job).reason.startswith("waiting for 2 CPUs: 0 of 2 free")


def test_an_engine_whose_runs_cant_grow_only_shrinks(world: World) -> None:
    world.engine.grows_runs = False
    job_id = elastic(world, most=4)
    world.pass_time(1000)
    world.phase(job_id, LearnerPhase.PROCESSING)
    world.step(job_id, 3)
    assert len(world.learners(job_id)) == 2


def test_a_learner_that_its_engine_refuses_costs_the_others_nothing(world: World) -> None:
    job_id = elastic(world, most=3)
    world.pass_time(61)
    world.phase(job_id, LearnerPhase.PROCESSING)
    world.engine.refuses = LaunchRefused("no")
    world.step(job_id, 3)
    assert lost(world, job_id) == {2: "it can't be started: no"}
    assert world.job(job_id).state == "PROCESSING"


def test_one_that_joins_and_never_starts_is_given_up(world: World) -> None:
    job_id = elastic(world, most=3)
    world.pass_time(61)
    world.phase(job_id, LearnerPhase.PROCESSING)
    world.step(job_id, 3)
    assert len(world.learners(job_id)) == 3
    world.pass_time(901)
    world.phase(job_id, LearnerPhase.PROCESSING, 0)
    world.phase(job_id, LearnerPhase.PROCESSING, 1)
    world.step(job_id)
    assert lost(world, job_id) == {2: "it did not start within 15m"}


def test_a_halt_ends_all_of_them(world: World) -> None:
    job_id = elastic(world)
    world.exit(job_id, 1, 1, "exit code 1")
    world.step(job_id)
    with world.transaction() as session:
        session.get_one(Job, job_id).desired = "HALTED"
    world.step(job_id, 3)
    assert world.job(job_id).state == "HALTED"
