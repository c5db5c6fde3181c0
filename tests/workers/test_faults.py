"""Faults of learners and engines, and the messages that a user reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import SecretStr
from sqlalchemy import select
from tests.workers.fake_engine import GIB, FakeEngine
from tests.workers.world import World

from weft_core.engine import LaunchRefused, LearnerState, Node, Observation
from weft_core.lifecycle.states import LearnerPhase
from weft_core.objects import Objects
from weft_core.secrets import SecretBox, generate_key
from weft_core.settings import S3Settings
from weft_core.store.models import NodeBlame
from weft_workers.context import Context

# --- a learner fails ----------------------------------------------------------------------------------------------


def test_one_learner_fails_and_the_gang_is_stopped_before_the_job_fails(world: World) -> None:
    world.engine.obeys = False
    job = world.running(learners=3)
    world.exit(job, 3, rank=1, reason="exit code 3", lines="epoch 1\nValueError: bad shape")
    world.step(job)
    (attempt,) = world.attempts(job)
    assert attempt.outcome == "FAILED"
    assert 20 < world.engine.stops[0][1] <= 30, "the others may save a checkpoint"
    assert world.job(job).state == "PROCESSING", "two learners still run"

    world.engine.runs.clear()
    world.step(job)
    failed = world.job(job)
    assert failed.state == "FAILED"
    assert failed.reason == "learner 2: exit code 3; its last lines:\n  epoch 1\n  ValueError: bad shape"
    assert (failed.error_code, world.attempts(job)[0].exit_code) == ("C201", 3)
    assert world.events(job, "learner") == ["learner 2: exit code 3"]


def test_without_reported_lines_the_log_itself_is_quoted(world: World) -> None:
    job = world.running()
    world.write_log(job, 0, "loading\nbash: trian.py: command not found\n")
    world.exit(job, 127, reason="command not found: trian.py")
    world.step(job)
    assert world.job(job).reason.splitlines() == [
        "learner 1: command not found: trian.py; its last lines:",
        "  loading",
        "  bash: trian.py: command not found",
    ]


def test_the_code_of_an_agents_own_failure_is_kept(world: World) -> None:
    job = world.running()
    world.exit(job, 1, reason="S302 can't load the data: container 'mnist' does not exist")
    world.step(job)
    assert world.job(job).error_code == "S302"
    assert world.job(job).reason == "learner 1: can't load the data: container 'mnist' does not exist"


def test_a_gang_is_retried_as_a_whole_after_a_pause_and_the_retries_run_out(world: World) -> None:
    job = world.running(learners=2, retries=1)
    world.exit(job, 3, rank=0, reason="exit code 3", lines="boom")
    world.step(job)
    again = world.job(job)
    assert (again.state, again.failures, again.error_code) == ("QUEUED", 1, None)
    assert again.reason == "retry 1 of 1 after: learner 1: exit code 3"
    assert len(world.attempts(job)) == 1

    world.pass_time(-60)
    world.step(job)  # an early hint changes nothing: it pauses
    assert len(world.attempts(job)) == 1
    world.pass_time(62)
    world.step(job)
    assert [attempt.outcome for attempt in world.attempts(job)] == ["FAILED", None]
    assert world.engine.created == [f"weft-{job}-1", f"weft-{job}-2"]
    assert [learner.phase for learner in world.learners(job)][2:] == ["WAITING", "WAITING"], "a fresh gang"

    world.exit(job, 4, rank=1, reason="exit code 4")
    world.step(job)
    assert (world.job(job).state, world.job(job).failures) == ("FAILED", 2)
    assert world.job(job).reason == "learner 2: exit code 4"


def test_a_resume_after_failure_starts_at_once_with_fresh_retries(world: World) -> None:
    job = world.running()
    world.exit(job, 3)
    world.step(job)
    assert world.job(job).state == "FAILED"
    world.resume(job)
    world.step(job)
    assert (world.job(job).state, world.job(job).failures, world.job(job).attempt) == ("PENDING", 0, 2)


def test_out_of_memory_is_said_with_the_limit_and_blamed_before_those_it_dragged_along(world: World) -> None:
    job = world.running(learners=2, resources={"memory": 512 << 20})
    world.engine.end_learner(world.run, 1, exit_code=-9, oom=True)
    world.exit(job, 1, rank=0, reason="exit code 1", lines="connection reset by peer")
    world.step(job)
    assert world.job(job).reason == "learner 2 was killed: out of memory (limit 512 MiB)"


def test_an_agent_that_saw_the_kernel_kill_its_command_says_the_same(world: World) -> None:
    job = world.running()
    world.exit(job, 137, reason="killed by signal 9 (SIGKILL): out of memory")
    world.step(job)
    assert world.job(job).reason == "learner 1 was killed: out of memory (limit 1 GiB)"


def test_a_kill_that_may_have_been_anothers_is_no_certainty(world: World) -> None:
    job = world.running()
    world.exit(job, 137, reason="killed by signal 9 (SIGKILL), probably out of memory")
    world.step(job)
    assert world.job(job).reason == "learner 1 was killed by signal 9 (SIGKILL), probably out of memory"


def test_a_gpus_memory_is_not_the_learners(world: World) -> None:
    job = world.running()
    world.exit(job, 1, reason="the GPU ran out of memory (exit code 1): Tried to allocate 20.00 GiB")
    world.step(job)
    assert world.job(job).reason == "learner 1: the GPU ran out of memory (exit code 1): Tried to allocate 20.00 GiB"


EVICTED = 'evicted: it used more storage than it has: Usage of EmptyDir volume "work" exceeds the limit "1Gi".'


def test_a_learner_that_wrote_too_much_has_failed_and_is_blamed_before_those_it_dragged_along(world: World) -> None:
    job = world.running(learners=2, retries=1)
    world.engine.end_learner(world.run, 1, reason=EVICTED, over_storage=True)
    world.exit(job, 1, rank=0, reason="exit code 1", lines="connection reset by peer")
    world.step(job)
    assert world.attempts(job)[0].outcome == "FAILED"
    assert world.attempts(job)[0].reason == f"learner 2 was {EVICTED}"
    assert world.job(job).state == "QUEUED"
    assert world.job(job).reason == f"retry 1 of 1 after: learner 2 was {EVICTED}"


def test_an_agent_that_could_still_report_says_the_same(world: World) -> None:
    job = world.running()
    world.engine.end_learner(world.run, 0, exit_code=143, reason=EVICTED, over_storage=True)
    world.exit(job, 143, reason="stopped")
    world.step(job)
    assert world.job(job).state == "FAILED"
    assert world.job(job).reason == f"learner 1 was {EVICTED}"
    assert world.attempts(job)[0].outcome == "FAILED"


def test_of_several_failures_the_earliest_is_blamed(world: World) -> None:
    job = world.running(learners=3)
    world.exit(job, 7, rank=2)
    world.exit(job, 1, rank=0)
    world.step(job)
    assert world.job(job).reason == "learner 3: exit code 7"


# --- a learner vanishes -------------------------------------------------------------------------------------------


def test_an_agent_that_was_killed_without_a_report_loses_the_attempt(world: World) -> None:
    job = world.running(retries=1)
    world.engine.end_learner(world.run, 0, exit_code=-9)
    world.step(job)
    (attempt,) = world.attempts(job)
    assert (attempt.outcome, attempt.reason) == ("LOST", "learner 1 was killed by signal 9 (SIGKILL)")
    assert world.job(job).state == "QUEUED", "a loss is retried"


@pytest.mark.parametrize("vanishes", [False, True], ids=["exited", "absent"])
def test_the_exit_report_in_the_store_is_believed_before_a_loss(world: World, vanishes: bool) -> None:
    job = world.running(learners=2)
    world.leave_exit_report(job, 0, 0)
    world.leave_exit_report(job, 1, 0)
    for rank in (0, 1):
        if vanishes:
            world.engine.lose_learner(world.run, rank)
        else:
            world.engine.end_learner(world.run, rank, exit_code=0)
    world.step(job)
    assert world.job(job).state == "COMPLETED"
    assert [learner.exit_code for learner in world.learners(job)] == [0, 0]


def test_a_failure_found_in_the_store_is_told_like_a_reported_one(world: World) -> None:
    job = world.running()
    world.leave_exit_report(job, 0, 3, "exit code 3")
    world.engine.end_learner(world.run, 0, exit_code=3)
    world.step(job)
    assert (world.job(job).state, world.job(job).reason) == ("FAILED", "learner 1: exit code 3")


def test_nobody_is_lost_while_the_store_can_not_be_asked(world: World, context: Context) -> None:
    job = world.running()
    nowhere = S3Settings(endpoint="http://127.0.0.1:9", access_key="k", secret_key=SecretStr("s"))
    world.context = replace(context, objects=Objects(nowhere))
    world.engine.end_learner(world.run, 0, exit_code=-9)
    world.step(job)
    assert world.attempts(job)[0].outcome is None
    assert "can't search for exit reports" in (world.job(job).condition or "")


def test_lost_takes_absences_and_silence(world: World) -> None:
    job = world.running()
    world.engine.lose_learner(world.run, 0)
    for _ in range(5):
        world.pass_time(1)
        world.step(job)
    assert world.attempts(job)[0].outcome is None, "absent, but its heartbeat was heard a moment ago"
    assert world.learners(job)[0].absences == 5
    assert world.learners(job)[0].absent_since is not None
    world.pass_time(60)
    world.step(job)
    assert world.attempts(job)[0].outcome == "LOST"
    assert world.job(job).reason.startswith("learner 1 vanished: its engine does not know it any more")
    assert world.job(job).error_code == "S104"


def test_a_silent_learner_that_the_engine_sees_is_not_lost(world: World) -> None:
    job = world.running()
    world.pass_time(3600)
    world.step(job, times=5)
    assert (world.job(job).state, world.attempts(job)[0].outcome) == ("PROCESSING", None)


def test_partial_absences_are_forgotten_when_the_learner_is_seen_again(world: World) -> None:
    job = world.running(learners=2)
    whole = world.engine.runs[world.run]
    world.engine.lose_learner(world.run, 1)
    for _ in range(2):
        world.pass_time(60)
        world.step(job)
    assert [learner.absences for learner in world.learners(job)] == [0, 2]
    world.engine.runs[world.run] = whole
    world.pass_time(60)
    world.step(job)
    assert [learner.absences for learner in world.learners(job)] == [0, 0]
    assert world.learners(job)[1].absent_since is None
    assert world.attempts(job)[0].outcome is None


# --- nodes --------------------------------------------------------------------------------------------------------


TWO = tuple(Node(f"node-{n}", cpus=4, gpus=4, memory=16 * GIB) for n in (1, 2))


def test_where_each_learner_runs_is_kept(world: World) -> None:
    world.engine.nodes = TWO
    job = world.running(learners=3)
    assert [learner.node for learner in world.learners(job)] == ["node-1", "node-2", "node-1"]
    run = world.engine.runs[world.run]
    moved = replace(run.learners[1], node="")  # nothing new is no news
    world.engine.runs[world.run] = replace(run, learners={**run.learners, 1: moved})
    world.step(job)
    assert world.learners(job)[1].node == "node-2"


def test_where_learners_ran_is_kept_of_the_quickest_jobs_too(world: World) -> None:
    world.engine.obeys = False
    job = world.submit()
    world.step(job)
    world.exit(job, 0)
    for name in list(world.engine.runs):
        world.engine.end_learner(name, 0, exit_code=0)
    world.step(job, times=2)
    assert (world.job(job).state, world.learners(job)[0].node) == ("COMPLETED", "node-1")


def test_a_node_that_does_not_answer_is_a_condition_and_no_loss_while_its_learner_speaks(world: World) -> None:
    world.engine.nodes = TWO
    job = world.running(learners=2)
    world.engine.lose_node("node-2")
    for _ in range(5):
        world.pass_time(60)
        world.phase(job, LearnerPhase.PROCESSING)  # both are heard
        world.step(job)
    assert world.job(job).condition == "learner 2: node node-2 does not answer"
    assert (world.job(job).state, world.attempts(job)[0].outcome) == ("PROCESSING", None)
    assert [learner.absences for learner in world.learners(job)] == [0, 5]
    world.engine.lose_node("node-2", back=True)
    world.step(job)
    assert (world.job(job).condition, world.learners(job)[1].absences) == (None, 0)
    assert world.events(job, "condition") == [
        "learner 2: node node-2 does not answer",
        "no longer: learner 2: node node-2 does not answer",
    ]


def test_a_silent_learner_on_a_lost_node_interrupts_the_attempt_and_the_job_pays_no_retry(world: World) -> None:
    world.engine.nodes, world.engine.obeys = TWO, False
    job = world.running(learners=2, retries=0)
    world.engine.lose_node("node-2")
    world.pass_time(100)
    world.phase(job, LearnerPhase.PROCESSING, rank=0)
    world.step(job, times=3)
    assert world.attempts(job)[0].outcome is None, "three looks, and then the verdict"
    world.step(job)
    (attempt,) = world.attempts(job)
    assert (attempt.outcome, attempt.error_code) == ("INTERRUPTED", "S104")
    assert attempt.reason.startswith("learner 2 was lost with its node: node node-2 does not answer, and it has been")
    with world.transaction() as session:
        blames = [(row.node, row.job, row.attempt, row.reason) for row in session.scalars(select(NodeBlame))]
    assert blames == [("node-2", job, 1, attempt.reason)]
    assert world.job(job).state == "PROCESSING", "its peer still runs"
    # The peer's end is waited for; that of the lost pod, which stays as long as its node is away, is not.
    world.engine.end_learner(world.run, 0, exit_code=143)
    world.step(job)
    again = world.job(job)
    assert (again.failures, again.error_code) == (0, None)
    # Its pause is one second, after which a slow machine has admitted it again.
    again_for = [reason for reason in world.events(job, "state") if reason.startswith("starts again: ")]
    assert len(again_for) == 1
    assert again_for[0].startswith("starts again: learner 2 was lost with its node")
    assert world.run, "the pod is still there"
    world.pass_time(60)
    world.step(job)
    assert [row.outcome for row in world.attempts(job)] == ["INTERRUPTED", None]


def test_a_learner_that_fails_for_a_lost_node_is_not_to_blame(world: World) -> None:
    """Its peer's connection broke: it says so at once, and the engine only notices a minute later."""
    world.engine.nodes = TWO
    job = world.running(learners=2, retries=0)
    world.pass_time(1)
    world.exit(job, 1, rank=0, lines="connection reset by peer")
    world.step(job)
    assert world.attempts(job)[0].outcome is None, "it waits to hear of learner 2"
    world.pass_time(50)
    world.engine.lose_node("node-2")
    world.step(job, times=4)
    assert world.attempts(job)[0].outcome == "INTERRUPTED"
    assert world.job(job).failures == 0


@pytest.mark.parametrize("lives", [True, False])
def test_a_failure_of_its_own_is_told_when_the_other_node_lives_or_after_a_while(world: World, lives: bool) -> None:
    world.engine.nodes = TWO
    job = world.running(learners=2)
    world.pass_time(1)
    world.exit(job, 1, rank=0)
    world.step(job)
    assert world.attempts(job)[0].outcome is None
    if lives:
        world.phase(job, LearnerPhase.PROCESSING, rank=1)  # the next heartbeat of the other
    else:
        world.pass_time(91)
    world.step(job)
    assert (world.job(job).state, world.job(job).reason) == ("FAILED", "learner 1: exit code 1")


def test_on_one_node_nobody_waits(world: World) -> None:
    job = world.running(learners=2)
    world.pass_time(1)
    world.exit(job, 1, rank=0)
    world.step(job)
    assert world.job(job).state == "FAILED"


def test_a_halt_of_a_job_on_a_lost_node_ends_when_its_learner_is_silent(world: World) -> None:
    world.engine.obeys = False
    job = world.running()
    world.engine.lose_node("node-1")
    world.halt(job)
    world.step(job, times=2)
    assert world.job(job).state == "PROCESSING", "its heartbeat was heard a moment ago: it may save a checkpoint"
    world.pass_time(31)
    world.step(job)
    assert world.job(job).state == "HALTED"


# --- an engine that does not answer ------------------------------------------------------------------------------


def test_an_unreachable_engine_changes_nothing_but_the_condition(world: World) -> None:
    job = world.running()
    world.pass_time(3600)
    world.engine.unreachable = "connection refused"
    world.step(job, times=4)
    still = world.job(job)
    assert (still.state, world.attempts(job)[0].outcome) == ("PROCESSING", None)
    assert still.condition is not None
    assert still.condition.startswith("Unreachable since 20")
    assert still.condition.endswith("UTC: connection refused")
    assert len(world.events(job, "condition")) == 1, "told once"
    world.engine.unreachable = ""
    world.step(job)
    assert world.job(job).condition is None
    assert world.events(job, "condition")[-1].startswith("no longer: Unreachable since")


def test_a_halt_waits_for_the_engines_word(world: World) -> None:
    job = world.running()
    world.engine.unreachable = "timed out"
    world.halt(job)
    world.step(job)
    assert world.attempts(job)[0].outcome == "HALTED", "heartbeats stop the learners even now"
    assert world.job(job).state == "PROCESSING", "who can tell whether they are gone?"
    world.engine.unreachable = ""
    world.step(job)
    assert world.job(job).state == "HALTED"


def test_a_launch_that_timed_out_and_yet_worked_is_adopted(world: World) -> None:
    world.engine.late_create = True
    job = world.submit()
    world.step(job)
    assert world.attempts(job)[0].launched_at is None
    assert (world.job(job).condition or "").startswith("Unreachable since")
    world.step(job)
    assert world.attempts(job)[0].launched_at is not None
    assert len(world.engine.launches) == 2
    assert world.engine.created == [f"weft-{job}-1"]
    assert world.job(job).condition is None


def test_an_engine_that_left_the_settings(world: World) -> None:
    job = world.submit(engine="cloud")
    world.step(job)
    assert world.job(job).state == "QUEUED"
    assert "engine 'cloud' is not in the settings (there are: local)" in world.job(job).reason


def test_a_token_that_can_not_be_read_is_said_and_tried_again(world: World, context: Context) -> None:
    other_keys = replace(context, box=SecretBox([SecretStr(generate_key())]))
    world.engine.unreachable = "down"
    job = world.submit()
    world.step(job)
    assert world.job(job).state == "QUEUED"
    world.engine.unreachable, world.engine.late_create = "", True
    world.step(job)
    world.context = other_keys
    world.step(job)
    assert "can't be read with the configured secret_keys" in (world.job(job).condition or "")
    world.context = context
    world.step(job)
    assert world.attempts(job)[0].launched_at is not None
    assert world.job(job).condition is None


# --- what the engine says of a run -------------------------------------------------------------------------------


def test_an_interruption_counts_against_nothing(world: World) -> None:
    job = world.running(learners=2)
    world.engine.end_learner(world.run, 1, exit_code=143, interrupted=True, reason="weft was stopped")
    world.exit(job, 143, rank=1)  # its agent could still report
    world.step(job)
    again = world.job(job)
    assert (again.state, again.failures) == ("QUEUED", 0)
    assert again.reason == "starts again: learner 2 was interrupted: weft was stopped"
    assert world.attempts(job)[0].outcome == "INTERRUPTED"


def test_the_gang_of_a_learner_that_was_taken_back_may_save_a_checkpoint(world: World) -> None:
    world.engine.obeys = False
    job = world.running(learners=2, retries=0)
    preempted = "preempted by a pod of higher priority"
    world.engine.end_learner(world.run, 1, exit_code=143, interrupted=True, reason=preempted)
    world.step(job)
    assert world.attempts(job)[0].outcome == "INTERRUPTED"
    assert 20 < world.engine.stops[0][1] <= 30
    world.engine.runs.clear()
    world.step(job)
    again = world.job(job)
    assert (again.state, again.failures) == ("QUEUED", 0)
    assert again.reason == f"starts again: learner 2 was interrupted: {preempted}"


def test_a_start_timeout_takes_the_attempt_back(world: World) -> None:
    job = world.submit(learners=2)
    world.step(job)
    world.phase(job, LearnerPhase.STARTED, rank=0)
    world.pass_time(901)
    world.step(job)
    assert world.job(job).state == "QUEUED"
    assert world.job(job).reason == "starts again: only 1 of 2 learners started within 15m"


def test_what_can_not_be_scheduled_says_why_and_is_taken_back_and_queued_again(
    world: World, engine: FakeEngine
) -> None:
    job = world.submit(learners=2)
    world.step(job)
    name, why = world.run, "unschedulable: no node fits (2 nodes: 2 not of the kind asked for)"
    learners = engine.runs[name].learners.items()
    waiting = {rank: replace(each, state=LearnerState.STARTING, node="", reason=why) for rank, each in learners}
    engine.runs[name] = Observation(name, waiting)
    world.step(job)
    assert (world.job(job).state, world.job(job).reason) == ("PENDING", f"learner 1: {why}")
    world.pass_time(901)
    world.step(job)
    again = world.job(job)
    assert (again.state, again.failures) == ("QUEUED", 0)
    assert again.reason == f"starts again: only 0 of 2 learners started within 15m: {why}"
    world.pass_time(60)
    world.step(job, 2)
    assert [attempt.outcome for attempt in world.attempts(job)] == ["INTERRUPTED", None]
    assert world.attempts(job)[0].reason == again.reason.removeprefix("starts again: ")


def test_an_image_being_built_is_told_and_does_not_time_out(world: World, engine: FakeEngine) -> None:
    job = world.submit()
    world.step(job)
    name = world.run
    for done in (3, 12):
        engine.runs[name] = Observation(name, progress=f"building environment: {done} of 37 packages")
        world.pass_time(800)
        world.step(job)
    assert world.events(job, "image") == [f"building environment: {n} of 37 packages" for n in (3, 12)]
    assert (world.job(job).state, world.job(job).reason) == ("PENDING", "building environment: 12 of 37 packages")
    assert world.learners(job)[0].absences == 0
    world.step(job)
    assert len(world.events(job, "image")) == 2, "only news are events"
    world.pass_time(901)
    world.step(job)
    assert world.job(job).state == "QUEUED", "nothing new for a whole start timeout"


def test_what_the_engines_own_queue_holds_back_does_not_time_out(world: World, engine: FakeEngine) -> None:
    job = world.submit()
    world.step(job)
    name = world.run
    running = engine.runs[name]
    waiting = {0: replace(running.learners[0], state=LearnerState.STARTING, node="")}
    engine.runs[name] = Observation(name, waiting, held="waits in Kueue's queue team-a: 3 of 8 GPUs are free")
    for _ in range(3):
        world.pass_time(3000)
        world.step(job)
    assert (world.job(job).state, len(world.attempts(job))) == ("PENDING", 1)
    assert world.job(job).reason == "waits in Kueue's queue team-a: 3 of 8 GPUs are free"
    # Its turn comes: only now the start timeout begins.
    engine.runs[name] = Observation(name, waiting)
    world.pass_time(800)
    world.step(job)
    assert world.job(job).state == "PENDING"
    world.pass_time(200)
    world.step(job)
    assert world.job(job).state == "QUEUED"
    assert "only 0 of 1 learners started within 15m" in world.job(job).reason


def test_an_image_that_can_not_be_built_fails_the_job_whatever_its_retries(world: World, engine: FakeEngine) -> None:
    job = world.submit(retries=5)
    world.step(job)
    engine.runs[world.run] = Observation(world.run, failed="environment: no matching distribution", failed_code="S103")
    world.pass_time(1)
    world.step(job)
    assert (world.job(job).state, world.job(job).error_code) == ("FAILED", "S103")
    assert world.job(job).reason == "environment: no matching distribution"


def test_a_refused_launch_fails_the_job_whatever_its_retries(world: World) -> None:
    world.engine.refuses = LaunchRefused("image 'nonsense:1' is not in the catalogue", "S103")
    job = world.submit(retries=5)
    world.step(job)
    assert (world.job(job).state, world.job(job).error_code) == ("FAILED", "S103")
    assert world.job(job).reason == "image 'nonsense:1' is not in the catalogue"
    assert world.attempts(job)[0].ended_at is not None


def test_max_runtime_ends_the_job_with_the_grace_and_no_retry(world: World) -> None:
    world.engine.obeys = False
    job = world.running(max_runtime=3600, retries=3)
    world.pass_time(3500)
    world.step(job)
    assert world.attempts(job)[0].outcome is None
    world.pass_time(200)
    world.step(job)
    assert 100 < world.engine.stops[0][1] <= 120
    world.engine.runs.clear()
    world.step(job)
    assert (world.job(job).state, world.job(job).reason) == ("FAILED", "max_runtime of 1h exceeded")


def test_a_halt_during_a_failure_halts_instead_of_retrying(world: World) -> None:
    world.engine.obeys = False
    job = world.running(retries=2)
    world.exit(job, 3)
    world.step(job)
    world.halt(job)
    world.engine.runs.clear()
    world.step(job)
    assert world.job(job).state == "HALTED"
