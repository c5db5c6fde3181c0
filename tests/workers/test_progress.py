"""When a gang counts as stalled, and the consequences, as functions of a view."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, text, update
from tests.workers.world import World

from weft_core.lifecycle.actions import Notice, Settle
from weft_core.lifecycle.decide import conclude
from weft_core.lifecycle.progress import check_progress, judge_looks, judge_stall, stall_condition, stall_due
from weft_core.lifecycle.states import Desired, JobState, LearnerPhase, Outcome
from weft_core.lifecycle.view import AttemptView, JobView, LearnerView, View
from weft_core.settings import TimingSettings
from weft_core.store.models import Attempt, Job, Learner

NOW = datetime(2026, 1, 31, 8, 15, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def learner(rank: int, idle: float | None, wrote: bool | None = True, **changes: Any) -> LearnerView:
    made = LearnerView(
        rank,
        LearnerPhase.PROCESSING,
        heartbeat_at=ago(1),
        idle_since=None if idle is None else ago(idle),
        wrote=wrote,
    )
    return replace(made, **changes)


def view(*learners: LearnerView, stall: dict[str, Any] | None = None, **attempt: Any) -> View:
    return View(
        now=NOW,
        timings=TimingSettings(stall=600, no_output=900),
        job=JobView(
            "job-1", "prj-1", "local", JobState.PROCESSING, Desired.RUNNING, len(learners), retries=1,
            state_since=ago(1000), manifest={"stall": stall} if stall else {},
        ),
        attempt=AttemptView("att-1", 1, "run", 1 << 30, launched_at=ago(1000), **attempt),
        learners=learners,
    )  # fmt: skip


def check(seen: View) -> Notice | Settle | None:
    assert seen.attempt is not None
    return check_progress(seen, seen.attempt)


def test_a_gang_is_stalled_when_all_of_it_is_idle() -> None:
    notice = check(view(learner(0, 700), learner(1, 650)))
    assert isinstance(notice, Notice)
    assert (notice.what, notice.since) == ("stalled", ago(650))
    assert "learner 1 since 2026-01-31 08:03:20 UTC, learner 2 since 2026-01-31 08:04:10 UTC" in notice.message
    assert [entry["learner"] for entry in notice.data["learners"]] == [1, 2]


def test_a_gang_gets_on_until_the_last_learner_that_is_done_has_ended() -> None:
    """The others wait for it, such as for a long evaluation, and end a moment after it."""

    def waiting(**done: Any) -> View:
        ended = learner(0, 0, phase=LearnerPhase.EXITED, **done)
        return view(ended, learner(1, 700, still_since=ago(700)))

    just_now = waiting(exited_at=ago(1))
    assert check(just_now) is None
    assert stall_due(just_now) == ago(1 - 600)
    long_ago = check(waiting(exited_at=ago(610)))
    assert isinstance(long_ago, Notice)
    assert (long_ago.what, [entry["learner"] for entry in long_ago.data["learners"]]) == ("stalled", [2])
    storing = learner(0, None, phase=LearnerPhase.STORING)  # until the others are done, too
    assert check(view(replace(storing, active_at=ago(3)), learner(1, 700))) is None
    assert isinstance(check(view(replace(storing, active_at=ago(650)), learner(1, 700))), Notice)


@pytest.mark.parametrize(
    "other",
    [
        learner(1, 599),
        learner(1, None),
        learner(1, 604, heartbeat_at=ago(9)),  # idle for 595 s when it was last heard
        learner(1, 700, heartbeat_at=ago(60)),  # unknown is not idle
        learner(1, 700, heartbeat_at=None),
    ],
)
def test_one_that_works_or_may_work_is_enough(other: LearnerView) -> None:
    assert check(view(learner(0, 700), other)) is None


def test_those_that_have_ended_well_do_not_count() -> None:
    ended = learner(1, None, phase=LearnerPhase.STORING)
    assert isinstance(check(view(learner(0, 700), ended)), Notice)


def test_the_manifest_goes_before_the_settings() -> None:
    idle = (learner(0, 700), learner(1, 700))
    assert check(view(*idle, stall={"after_seconds": 800, "action": "warn"})) is None
    assert check(view(*idle, stall={"after_seconds": 100, "action": "ignore"})) is None
    assert isinstance(check(view(learner(0, 150), stall={"after_seconds": 100, "action": "warn"})), Notice)
    waiting = view(*idle)
    assert check(replace(waiting, job=replace(waiting.job, keepalive=60.0))) is None, "a program's workers may wait"
    off = replace(view(*idle), timings=TimingSettings(stall=0, no_output=0))
    assert check(off) is None


def test_it_is_said_once_and_taken_back_when_something_moves() -> None:
    stalled: dict[str, Any] = {"stalled_at": ago(50), "stalled_since": ago(650), "verdict": "rank 1 is missing"}
    assert check(view(learner(0, 700), learner(1, 700), **stalled)) is None
    assert check(view(learner(0, 700), learner(1, 700, heartbeat_at=ago(60)), **stalled)) is None, "silent, not moving"
    notice = check(view(learner(0, 700), learner(1, 0), **stalled))
    assert isinstance(notice, Notice)
    assert notice.what == "moving"
    condition = "no progress since 2026-01-31 08:04:10 UTC: rank 1 is missing"
    assert stall_condition(view(learner(0, 700), **stalled).attempt) == condition
    assert stall_condition(view(learner(0, 700)).attempt) is None


def test_the_verdict_is_due_when_all_have_reported_or_enough_time_has_passed() -> None:
    stalled: dict[str, Any] = {"stalled_at": ago(20), "stalled_since": ago(650)}
    reported, other = (learner(rank, 700, stacks_at=ago(18)) for rank in (0, 1))
    assert check(view(reported, learner(1, 700), **stalled)) is None
    assert check(view(reported, learner(1, 700, stacks_at=ago(3000)), **stalled)) is None, "of an earlier stall"
    assert check(view(reported, other, **stalled)) == Notice("judge", "")
    late = check(view(reported, learner(1, 700), **stalled | {"stalled_at": ago(61)}))
    assert late == Notice("judge", "")


def test_the_verdict_names_those_that_have_ended() -> None:
    frames = [
        {"function": "barrier", "file": "torch/distributed/distributed_c10d.py", "line": 1},
        {"function": "train", "file": "train.py", "line": 9, "own": True},
    ]
    stacks = {"processes": [{"pid": 7, "rank": 0, "world": 2, "threads": [{"frames": frames}]}]}
    ended = learner(1, None, phase=LearnerPhase.STORING, exit_code=0)
    verdict, notice = judge_stall(view(learner(0, 700), ended), {0: stacks, 1: None})
    assert verdict.startswith("rank 1 has not entered barrier (train.py:9): it has ended (exit code 0); ")
    assert (notice.message, notice.data["blamed"]) == (f"verdict: {verdict}", [1])
    assert judge_stall(view(learner(0, 700)), {0: None}) == ("", Notice("judge", ""))


def test_action_end_fails_the_attempt_as_any_failure_does_once_the_stacks_are_out() -> None:
    stall = {"after_seconds": 600, "action": "end"}
    stalled: dict[str, Any] = {"stalled_since": ago(650), "verdict": "rank 1 is missing"}
    assert check(view(learner(0, 700), stall=stall, stalled_at=ago(14), **stalled)) is None
    end = check(view(learner(0, 700), stall=stall, stalled_at=ago(16), **stalled))
    assert isinstance(end, Settle)
    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 124)
    assert end.reason.startswith(
        "no progress since 2026-01-31 08:04:10 UTC: rank 1 is missing; all learners were idle for 10m;"
    )
    after = view(outcome=end.outcome, reason=end.reason, exit_code=end.exit_code)
    conclusion = conclude(replace(after, learners=()))
    assert (conclusion.state, conclusion.failures) == (JobState.QUEUED, 1)
    assert conclusion.reason.startswith("retry 1 of 1 after: no progress since")


def test_action_fail_fails_the_job_without_a_retry() -> None:
    stall = {"after_seconds": 600, "action": "fail"}
    end = check(view(learner(0, 700), stall=stall, stalled_at=ago(16), stalled_since=ago(650), verdict=""))
    assert isinstance(end, Settle)
    assert (end.outcome, end.exit_code) == (Outcome.FAILED, None)
    after = view(outcome=end.outcome, reason=end.reason, exit_code=end.exit_code)
    conclusion = conclude(replace(after, learners=()))
    assert conclusion.state is JobState.FAILED
    assert conclusion.reason.startswith("no progress since 2026-01-31 08:04:10 UTC: all learners were idle for 10m;")


def still(rank: int, seconds: float, pause: float = 20, **changes: Any) -> LearnerView:
    """Busy, and without a step for so long."""
    return learner(rank, 0, still_since=ago(seconds), pause=pause, **changes)


def test_a_busy_gang_without_a_step_is_looked_at_and_not_ended() -> None:
    gang = (still(0, 700), still(1, 650))
    assert check(view(*gang)) == Notice("look", "")
    assert stall_due(view(*gang)) == ago(50)
    for other in (
        still(1, 599),
        learner(1, 0),  # an older agent
        still(1, 700, heartbeat_at=ago(60)),
        still(1, 700, pause=240),  # it has been silent for so long before
    ):
        assert check(view(still(0, 700), other)) is None
    assert check(view(*gang, stall={"after_seconds": 100, "action": "ignore"})) is None
    assert check(view(*gang, alive_at=ago(599))) is None, "it was alive when they last looked"
    assert check(view(*gang, alive_at=ago(601))) == Notice("look", "")
    looking = view(*gang, look_at=ago(20))
    assert check(looking) is None
    seen = [replace(each, stacks_at=ago(3)) for each in gang]
    assert check(view(*seen, look_at=ago(20))) == Notice("looked", "")
    assert check(view(*gang, look_at=ago(61))) == Notice("looked", ""), "an agent that never answers"


def _waits(still: bool = True, **process: Any) -> dict[str, Any]:
    frames = [
        {"function": "synchronize", "file": "horovod/torch/mpi_ops.py", "line": 1285},
        {"function": "train", "file": "train.py", "line": 9, "own": True},
    ]
    entry = {"pid": 7, "threads": [{"frames": frames}], "still": still, "cpu_percent": 40.0}
    return {"processes": [entry | process]}


def _reads(still: bool = True, cpu_percent: float = 1.0) -> dict[str, Any]:
    frames = [{"function": "read", "file": "data.py", "line": 41, "own": True}]
    entry = {"pid": 7, "threads": [{"frames": frames}], "still": still, "cpu_percent": cpu_percent}
    return {"processes": [entry]}


@pytest.mark.parametrize(
    ("reports", "what"),
    [
        ([_waits(), _reads()], "stalled"),
        ([_waits(), _reads(still=False)], "moving"),  # a long evaluation by one rank
        ([_waits(), _reads(cpu_percent=97.0)], "moving"),  # a long call of C, such as a compilation
        ([_waits(still=False), _reads()], "moving"),
        ([_waits(), None], "moving"),
        ([_reads(), _reads()], "moving"),  # no rank waits for another
        ([_waits(), _waits()], "moving"),  # they may talk all the time
        ([_waits(finished=12), _waits(finished=12)], "stalled"),
    ],
)
def test_several_looks_show_whether_a_gang_hangs(reports: list[dict[str, Any] | None], what: str) -> None:
    notice = judge_looks(view(still(0, 700), still(1, 650)), dict(enumerate(reports)))
    assert notice.what == what
    if what == "stalled":
        assert notice.since == ago(650)
        assert notice.message.startswith("no progress since 2026-01-31 08:04:10 UTC: no line, no metric and nothing")


def test_a_step_while_the_agents_look_shows_that_the_gang_gets_on() -> None:
    reports = dict(enumerate([_waits(finished=12), _waits(finished=12)]))
    assert judge_looks(view(still(0, 700), still(1, 5)), reports).what == "moving"


def test_a_busy_gang_that_hangs_moves_by_a_step_only_and_ends_by_a_verdict_only() -> None:
    stalled: dict[str, Any] = {"stalled_at": ago(70), "stalled_since": ago(650), "look_at": ago(90)}
    stall = {"after_seconds": 600, "action": "end"}
    gang = (still(0, 700), still(1, 650))
    assert check(view(*gang, verdict="", stall=stall, **stalled)) is None
    end = check(view(*gang, verdict="rank 1 is missing", stall=stall, **stalled))
    assert isinstance(end, Settle)
    assert "rank 1 is missing; several looks show all ranks at the same place" in end.reason
    assert check(view(still(0, 700), still(1, 1), verdict="", **stalled)) == Notice("moving", "")


def test_a_job_that_writes_nothing_gets_one_warning() -> None:
    notice = check(view(learner(0, 0, wrote=False), learner(1, 0, wrote=False)))
    assert isinstance(notice, Notice)
    assert notice.what == "no_output"
    assert "15m" in notice.message
    assert check(view(learner(0, 0, wrote=False), learner(1, 0, wrote=True))) is None
    assert check(view(learner(0, 0, wrote=False), learner(1, 0, wrote=None))) is None, "unknown is not nothing"
    assert check(view(learner(0, 0, wrote=False), no_output_at=ago(10))) is None
    early = view(learner(0, 0, wrote=False))
    assert check(replace(early, job=replace(early.job, state_since=ago(800)))) is None
    assert check(replace(early, job=replace(early.job, state=JobState.STORING))) is None


# --- through the database ------------------------------------------------------------------------------------------


def beat(world: World, job: str, **values: Any) -> None:
    """All learners' heartbeats say so."""
    with world.transaction() as session:
        attempt = select(Attempt.id).where(Attempt.job_id == job, Attempt.ended_at.is_(None)).scalar_subquery()
        row = update(Learner).where(Learner.attempt_id == attempt).values(heartbeat_at=func.now(), **values)
        session.execute(row)
        session.execute(update(Job).where(Job.id == job).values(next_step_at=func.now()))
    world.step(job)


IDLE = func.now() - text("interval '2000 seconds'")


def test_a_stall_is_one_event_and_a_condition_for_as_long_as_it_lasts(world: World) -> None:
    job = world.running(learners=2)
    for _ in range(3):
        beat(world, job, idle_since=IDLE)
    [warning] = world.events(job, "warning")
    assert warning.startswith("no progress for 30m: ")
    condition = world.job(job).condition
    assert condition is not None
    assert condition.startswith("no progress since ")
    [attempt] = world.attempts(job)
    assert attempt.stalled_at is not None
    beat(world, job, idle_since=func.now())
    assert world.job(job).condition is None
    assert world.attempts(job)[0].stalled_at is None
    assert world.events(job, "condition") == [f"no longer: {condition}"]
    beat(world, job, idle_since=IDLE)
    assert len(world.events(job, "warning")) == 2, "another stall raises a warning, too"


def test_the_verdict_on_a_stall_is_an_event_and_part_of_the_condition(world: World) -> None:
    job = world.running(learners=2)
    beat(world, job, idle_since=IDLE)
    frames = [{"function": "load", "file": "data.py", "line": 41, "own": True}]
    stacks = {"processes": [{"pid": 7, "threads": [{"frames": frames}]}]}
    for _ in range(2):
        beat(world, job, idle_since=IDLE, stacks=stacks, stacks_at=func.now())
    verdict = "all ranks are in load (data.py:41)"
    assert world.events(job, "warning")[1:] == [f"verdict: {verdict}"]
    condition = world.job(job).condition
    assert condition is not None
    assert condition.endswith(f": {verdict}")
    assert world.events(job, "condition") == []
    beat(world, job, idle_since=func.now())
    assert world.attempts(job)[0].verdict is None


STILL = {"idle_since": func.now(), "still_since": IDLE, "pause_seconds": 9.0}
"""Busy, and without a step."""


def test_a_busy_gang_that_hangs_is_found_by_looks(world: World) -> None:
    job = world.running(learners=2)
    beat(world, job, **STILL)
    [attempt] = world.attempts(job)
    assert (attempt.look_at is None, attempt.stalled_at) == (False, None)
    assert world.events(job, "warning") == []
    for report in (_waits(still=False), _waits(finished=12)):
        with world.transaction() as session:
            session.execute(update(Attempt).values(look_at=func.now(), alive_at=None))
        beat(world, job, **STILL, stacks=report, stacks_at=func.now() + text("interval '1 second'"))
        [attempt] = world.attempts(job)
        alive = report["processes"][0]["still"] is False
        assert ((attempt.alive_at is not None), (attempt.stalled_at is None)) == (alive, alive)
    [warning] = world.events(job, "warning")
    assert "several looks show all ranks at the same place" in warning
    assert (world.job(job).condition or "").startswith("no progress since ")
    beat(world, job, **STILL | {"still_since": func.now()})
    assert world.job(job).condition is None
    assert world.attempts(job)[0].look_at is None


def test_a_stall_that_is_to_end_is_retried_as_any_failure(world: World) -> None:
    job = world.running(learners=2, retries=1, stall={"after_seconds": 600.0, "action": "end"})
    beat(world, job, idle_since=IDLE)
    assert world.job(job).state == "PROCESSING", "first the stacks"
    with world.transaction() as session:
        session.execute(update(Attempt).values(stalled_at=func.now() - text("interval '61 seconds'")))
    beat(world, job, idle_since=IDLE)
    beat(world, job, idle_since=IDLE)
    [attempt] = world.attempts(job)
    assert (attempt.outcome, attempt.exit_code) == ("FAILED", 124)
    assert world.job(job).reason.startswith("retry 1 of 1 after: no progress since")


def test_nothing_written_is_said_once_an_attempt(world: World) -> None:
    job = world.running()
    beat(world, job, wrote=False)
    assert world.events(job, "warning") == []
    with world.transaction() as session:
        session.execute(update(Job).values(state_since=func.now() - text("interval '901 seconds'")))
    for _ in range(3):
        beat(world, job, wrote=False)
    [warning] = world.events(job, "warning")
    assert "has written nothing into its folder, RESULT_DIR or CHECKPOINT_DIR" in warning
    assert world.job(job).condition is None
