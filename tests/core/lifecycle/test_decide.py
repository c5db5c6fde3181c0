"""The decisions as functions: for every possible view, a decision that the life cycle allows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from weft_core.engine import LearnerObservation, LearnerState, Observation
from weft_core.lifecycle.actions import (
    Admit,
    Advance,
    Close,
    HaltQueued,
    Launch,
    Pause,
    Purge,
    RecordExits,
    Rest,
    SearchExits,
    Settle,
)
from weft_core.lifecycle.decide import Inconsistent, conclude, confirmed_gone, decide
from weft_core.lifecycle.notes import take_notes
from weft_core.lifecycle.states import ACTIVE, TERMINAL, TRANSITIONS, Desired, JobState, LearnerPhase, Outcome
from weft_core.lifecycle.view import AttemptView, ExitReport, JobView, LearnerView, Sighting, View
from weft_core.settings import TimingSettings

T = TypeVar("T")
NOW = datetime(2026, 1, 31, 8, 15, tzinfo=UTC)
moments = st.integers(0, 2000).map(lambda seconds: NOW - timedelta(seconds=seconds))


def maybe(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | strategy


@st.composite
def learner_views(draw: st.DrawFn, rank: int) -> LearnerView:
    phase = draw(st.sampled_from(LearnerPhase))
    exited = phase is LearnerPhase.EXITED
    kept = phase is LearnerPhase.PROCESSING and draw(st.integers(0, 4)) == 0
    return LearnerView(
        rank=rank,
        phase=phase,
        started_at=draw(moments) if phase is not LearnerPhase.WAITING else None,
        heartbeat_at=draw(maybe(moments)),
        absences=draw(st.integers(0, 5)),
        node=draw(st.sampled_from([None, "n1", "n2"])),
        exit_code=3 if kept else draw(st.sampled_from([0, 0, 1, 137, -9])) if exited else None,
        exit_reason=draw(maybe(st.sampled_from(["exit code 3", "killed by signal 9 (SIGKILL)", "S302 no data"])))
        if exited
        else None,
        exited_at=draw(moments) if exited or kept else None,
        kept_until=NOW + timedelta(minutes=5) if kept else None,
    )


@st.composite
def observations(draw: st.DrawFn, learners: int) -> Observation | None:
    if draw(st.integers(0, 4)) == 0:
        return None
    seen = {}
    for rank in draw(st.sets(st.integers(0, learners - 1))):
        state = draw(st.sampled_from(LearnerState))
        ended = state is LearnerState.EXITED
        seen[rank] = LearnerObservation(
            rank,
            state,
            exit_code=draw(st.sampled_from([None, 0, 1, -9])) if ended else None,
            oom=ended and draw(st.booleans()),
            over_storage=ended and draw(st.booleans()),
            reason=draw(st.sampled_from(["", "node n1 does not answer"])),
            interrupted=ended and draw(st.integers(0, 5)) == 0,
            node=draw(st.sampled_from(["", "n1", "n2"])),
            unreachable=draw(st.integers(0, 3)) == 0,
        )
    return Observation(
        "run",
        seen,
        progress=draw(st.sampled_from(["", "", "building"])),
        held=draw(st.sampled_from(["", "", "", "waits in queue a"])),
        failed=draw(st.sampled_from(["", "", "", "no image"])),
    )


@st.composite
def views(draw: st.DrawFn, kind: Literal["any", "running", "closing"] = "any") -> View:
    state = draw(st.sampled_from([candidate for candidate in JobState if kind == "any" or candidate in ACTIVE]))
    n = draw(st.integers(1, 3))
    job = JobView(
        id="job-1",
        project_id="prj-1",
        engine="local",
        state=state,
        desired=draw(st.sampled_from(Desired)),
        learners=n,
        retries=draw(st.integers(0, 2)),
        failures=draw(st.integers(0, 3)),
        max_runtime=draw(st.sampled_from([None, 600.0])),
    )
    active = state in ACTIVE
    if not active and draw(st.booleans()):
        return View(NOW, TimingSettings(), job)
    launched = draw(moments if kind == "running" else maybe(moments))
    outcomes = st.sampled_from(Outcome)
    outcome = None if kind == "running" else draw(maybe(outcomes) if active and kind == "any" else outcomes)
    attempt = AttemptView(
        id="att-1",
        n=draw(st.integers(1, 9)),
        run_name="run",
        memory=1 << 30,
        launched_at=launched,
        held_at=draw(maybe(moments)) if launched else None,
        stop_requested_at=draw(moments) if outcome else None,
        grace=draw(st.sampled_from([None, 5.0, 120.0])),
        outcome=outcome,
        exit_code=draw(st.sampled_from([None, 3])),
        ended_at=None if active else draw(moments),
    )
    sighting = unreachable = None
    if launched and draw(st.booleans()):
        sighting = Sighting(draw(observations(n)), draw(moments | st.just(NOW)))
    elif draw(st.booleans()):
        unreachable = "timed out"
    reports = maybe(st.builds(ExitReport, st.sampled_from([0, 3]), st.just("")))
    exits = draw(st.dictionaries(st.integers(0, n - 1), reports))
    return View(
        NOW,
        TimingSettings(),
        job,
        attempt,
        tuple(draw(learner_views(rank)) for rank in range(n)) if active else (),
        sighting,
        unreachable,
        exits=exits,
    )


@given(views())
def test_every_decision_is_one_that_the_state_allows(view: View) -> None:
    action = decide(view)
    job, attempt = view.job, view.open
    if job.state in TERMINAL:
        assert isinstance(action, Purge if job.desired is Desired.DELETED else Rest), "terminal states absorb"
    elif job.state is JobState.QUEUED:
        wanted: dict[Desired, tuple[type, ...]] = {
            Desired.DELETED: (Purge,),
            Desired.HALTED: (HaltQueued,),
            Desired.RUNNING: (Admit, Pause),
        }
        assert isinstance(action, wanted[job.desired])
    else:
        assert attempt is not None
        assert isinstance(action, Close) == (attempt.outcome is not None), "one outcome, decided once"
        assert not isinstance(action, Admit | Purge | HaltQueued | Rest), "an open attempt is ended first"
    match action:
        case Advance(state, _):
            assert state in TRANSITIONS[job.state]
            assert state in ACTIVE
        case Launch():
            assert attempt is not None
            assert attempt.launched_at is None
            assert job.desired is Desired.RUNNING
        case Pause(seconds):
            assert seconds > 0
        case Close(grace, seconds):
            assert grace >= 0
            assert seconds > 0
        case Settle():
            assert action.reason
            assert action.grace >= 0


@given(views("running"))
def test_unknown_is_not_dead(view: View) -> None:
    """Without an answer that is newer than the launch, the engine's view leads to no conclusion."""
    attempt = view.open
    assert attempt is not None
    assert attempt.launched_at is not None
    stale = view.sighting is None or view.sighting.at <= attempt.launched_at
    assume(view.unreachable or stale)
    action = decide(view)
    assert not isinstance(action, SearchExits | RecordExits)
    if isinstance(action, Settle):
        own = {Outcome.SUCCEEDED, Outcome.HALTED, Outcome.DELETED}
        assert action.outcome in own or "max_runtime" in action.reason or view.kept
    assert take_notes(view).absences == {}


@given(views("running"))
def test_nobody_is_lost_before_the_store_was_searched(view: View) -> None:
    action = decide(view)
    if isinstance(action, Settle) and action.outcome is Outcome.LOST:
        assert action.rank is not None
        assert action.rank in view.exits
        assert view.exits[action.rank] is None


@given(views("running"))
def test_a_learner_whose_node_does_not_answer_is_lost_by_the_platform_alone(view: View) -> None:
    """And only when it is silent itself. One whose command has failed, and that is kept, failed by its command."""
    action = decide(view)
    seen = view.sighting.observation.learners if view.sighting and view.sighting.observation else {}
    if not isinstance(action, Settle) or action.rank is None or action.rank not in seen:
        return
    observed, learner = seen[action.rank], view.learners[action.rank]
    exited = observed.state is LearnerState.EXITED or learner.reported or learner.kept
    if observed.unreachable and not exited:
        assert (action.outcome, action.error_code) == (Outcome.INTERRUPTED, "S104")
        assert learner.heartbeat_at is None or view.since(learner.heartbeat_at) >= view.timings.silence
        assert learner.absences >= view.timings.absences


@given(views("running"))
def test_nothing_times_out_while_the_engines_queue_holds_it_back(view: View) -> None:
    action = decide(view)
    run = view.sighting.observation if view.sighting else None
    if run and run.held and isinstance(action, Settle):
        assert "started within" not in action.reason


@given(views("closing"))
def test_every_end_of_an_attempt_is_a_legal_transition(view: View) -> None:
    attempt = view.open
    assert attempt is not None
    end = conclude(view)
    assert end.state in TRANSITIONS[view.job.state]
    assert end.reason or not attempt.reason
    if end.state is JobState.QUEUED:
        assert end.next_in is not None
        assert view.job.desired is Desired.RUNNING
    if attempt.outcome is Outcome.SUCCEEDED and view.job.desired is not Desired.DELETED:
        assert end.state is JobState.COMPLETED
    counted = attempt.outcome in {Outcome.FAILED, Outcome.LOST} and view.job.desired is not Desired.DELETED
    assert end.failures == view.job.failures + counted


def test_rows_that_can_not_be_are_refused() -> None:
    job = JobView("job-1", "p", "local", JobState.PROCESSING, Desired.RUNNING, learners=1, retries=0)
    with pytest.raises(Inconsistent, match="job-1 is PROCESSING and has no open attempt"):
        decide(View(NOW, TimingSettings(), job))


def test_an_answer_from_before_the_launch_says_nothing() -> None:
    job = JobView("job-1", "p", "local", JobState.PENDING, Desired.RUNNING, learners=1, retries=0)
    attempt = AttemptView("att-1", 1, "run", memory=1, launched_at=NOW)
    view = View(NOW, TimingSettings(), job, attempt, (LearnerView(0),), Sighting(None, NOW - timedelta(seconds=1)))
    assert decide(view) == Pause(2.0)
    assert take_notes(view).absences == {}
    after = replace(view, sighting=Sighting(None, NOW + timedelta(seconds=1)))
    assert decide(after) == SearchExits(frozenset({0}))
    assert take_notes(after).absences == {0: 1}


def closing(*learners: LearnerView) -> View:
    job = JobView("job-1", "p", "local", JobState.PROCESSING, Desired.RUNNING, learners=len(learners), retries=0)
    attempt = AttemptView("att-1", 1, "run", memory=1, launched_at=NOW, outcome=Outcome.HALTED)
    return View(NOW, TimingSettings(), job, attempt, learners)


def test_a_known_run_without_learners_is_not_gone_unless_it_failed() -> None:
    view = closing(LearnerView(0))

    def gone(seen: Observation | None) -> bool:
        return confirmed_gone(view, seen, grace=0)

    assert gone(None)
    assert not gone(Observation("run", progress="building"))
    assert gone(Observation("run", failed="no image"))
    assert not gone(Observation("run", {0: LearnerObservation(0, LearnerState.RUNNING)}))
    assert gone(Observation("run", {0: LearnerObservation(0, LearnerState.EXITED)}))


def test_nobody_waits_for_a_lost_node_to_confirm_an_end() -> None:
    away = LearnerObservation(1, LearnerState.RUNNING, unreachable=True, reason="node n2 does not answer")
    first = LearnerView(0, LearnerPhase.EXITED, exit_code=1)
    heard = LearnerView(1, LearnerPhase.PROCESSING, heartbeat_at=NOW - timedelta(seconds=2))
    here = Observation("run", {0: LearnerObservation(0, LearnerState.EXITED), 1: away})
    both = Observation("run", {0: LearnerObservation(0, LearnerState.RUNNING), 1: away})
    assert not confirmed_gone(closing(first, heard), here, grace=20), "it lives, and may save a checkpoint"
    assert confirmed_gone(closing(first, heard), here, grace=0)
    silent = replace(heard, heartbeat_at=NOW - timedelta(seconds=31))
    assert confirmed_gone(closing(first, silent), here, grace=20)
    assert confirmed_gone(closing(first, replace(heard, phase=LearnerPhase.EXITED, exit_code=143)), here, grace=20)
    assert not confirmed_gone(closing(first, silent), both, grace=0), "the other's node does answer"


# --- whose fault it was, when learners run on several nodes ----------------------------------------------------------


def gang(*learners: LearnerView, seen: Observation | None = None, at: datetime = NOW) -> View:
    job = JobView("job-1", "p", "local", JobState.PROCESSING, Desired.RUNNING, learners=len(learners), retries=0)
    attempt = AttemptView("att-1", 1, "run", memory=1, launched_at=NOW - timedelta(hours=1))
    running = {
        learner.rank: LearnerObservation(learner.rank, LearnerState.RUNNING)
        for learner in learners
        if not learner.reported
    }
    return View(at, TimingSettings(), job, attempt, learners, Sighting(seen or Observation("run", running), at))


def failed(rank: int, node: str | None, ago: float) -> LearnerView:
    at = NOW - timedelta(seconds=ago)
    return LearnerView(rank, LearnerPhase.EXITED, heartbeat_at=at, exit_code=1, exited_at=at, node=node)


def alive(rank: int, node: str | None, heard: float) -> LearnerView:
    started = NOW - timedelta(hours=1)
    return LearnerView(
        rank, LearnerPhase.PROCESSING, started_at=started, heartbeat_at=NOW - timedelta(seconds=heard), node=node
    )


def blamed(view: View) -> int | None:
    action = decide(view)
    return action.rank if isinstance(action, Settle) else None


def test_a_failure_waits_for_the_fate_of_learners_on_other_nodes() -> None:
    first = failed(0, "n1", ago=5)
    assert blamed(gang(first, alive(1, "n2", heard=6))) is None, "nothing was heard of it since"
    assert blamed(gang(first, alive(1, "n2", heard=4))) == 0, "it lives, so its node does"
    assert blamed(gang(first, alive(1, "n1", heard=6))) == 0, "there is but one node"
    assert blamed(gang(first, alive(1, None, heard=6))) == 0, "nobody knows of a second node"
    assert blamed(gang(failed(0, None, ago=5), alive(1, "n2", heard=6))) is None
    assert blamed(gang(first, alive(1, "n1", heard=6), alive(2, "n2", heard=6))) is None
    assert blamed(gang(first, failed(1, "n2", ago=2))) == 0, "both have said how they ended"
    waiting = replace(alive(1, "n2", heard=6), phase=LearnerPhase.WAITING)
    assert blamed(gang(first, waiting)) == 0, "it has not begun: nobody can have lost it"


def test_the_wait_for_the_others_fate_ends() -> None:
    first, other = failed(0, "n1", ago=5), alive(1, "n2", heard=6)
    assert blamed(gang(first, other, at=NOW + timedelta(seconds=84))) is None
    assert blamed(gang(first, other, at=NOW + timedelta(seconds=86))) == 0
    # The engine saw the other one exit: its exit report is searched for.
    seen = Observation("run", {1: LearnerObservation(1, LearnerState.EXITED, exit_code=1)})
    assert decide(gang(first, other, seen=seen)) == SearchExits(frozenset({1}))
    searched = replace(gang(first, other, seen=seen), exits={1: None})
    action = decide(searched)
    assert isinstance(action, Settle)
    assert action.outcome is Outcome.LOST


def test_out_of_memory_waits_for_nobody() -> None:
    first = replace(failed(0, "n1", ago=5), exit_reason="killed by signal 9 (SIGKILL): out of memory")
    assert blamed(gang(first, alive(1, "n2", heard=6))) == 0


def test_the_lost_node_is_blamed_and_not_the_learner_that_failed_for_it() -> None:
    first = failed(0, "n1", ago=60)
    other = replace(alive(1, "n2", heard=61), absences=3)
    away = LearnerObservation(
        1, LearnerState.RUNNING, node="n2", unreachable=True, reason="node n2 does not answer since 08:14:20 UTC"
    )
    view = gang(first, other, seen=Observation("run", {1: away}))
    assert decide(view) == SearchExits(frozenset({1}))
    view = replace(view, exits={1: None})
    assert decide(view) == Settle(
        Outcome.INTERRUPTED,
        "learner 2 was lost with its node: node n2 does not answer since 08:14:20 UTC, and it has been silent for 1m1s",
        30.0,
        "S104",
        rank=1,
    )
    twice = replace(view, learners=(first, replace(other, absences=2)))
    assert decide(twice) == Pause(2.0), "not before the engine has said so three times"
    assert take_notes(twice).condition == "learner 2: node n2 does not answer since 08:14:20 UTC"


def test_the_start_timeout_counts_from_the_end_of_the_engines_queue() -> None:
    job = JobView("job-1", "p", "k8s", JobState.PENDING, Desired.RUNNING, learners=1, retries=0)
    starting = {0: LearnerObservation(0, LearnerState.STARTING, reason="unschedulable: 0 of 3 nodes")}
    attempt = AttemptView("att-1", 1, "run", memory=1, launched_at=NOW - timedelta(hours=2))
    held = View(
        NOW, TimingSettings(), job, attempt, (LearnerView(0),), Sighting(Observation("run", starting, held="q"), NOW)
    )
    assert decide(held) == Pause(10.0)
    assert (take_notes(held).held, take_notes(held).reason) == (True, "q")
    for seconds, action in ((899, Pause), (901, Settle)):
        since = replace(attempt, held_at=NOW - timedelta(seconds=seconds))
        free = replace(held, attempt=since, sighting=Sighting(Observation("run", starting), NOW))
        assert isinstance(decide(free), action)
        assert not take_notes(free).held


# --- learners that stay for a look inside after their command has failed ------------------------------------------


def keeping(rank: int, ago: float) -> LearnerView:
    at = NOW - timedelta(seconds=ago)
    until = at + timedelta(minutes=30)
    return replace(alive(rank, "n1", heard=1), exit_code=3, exit_reason="exit code 3", exited_at=at, kept_until=until)


def test_a_kept_learner_keeps_its_gang_and_no_rule_about_progress_holds() -> None:
    view = gang(replace(alive(0, "n1", heard=1), idle_since=NOW - timedelta(hours=1)), keeping(1, ago=1000))
    limited = replace(view, timings=TimingSettings(stall=10, no_output=10))
    assert isinstance(decide(limited), Pause)
    assert take_notes(limited).condition == (
        "kept after a failure until 2026-01-31 08:28:20 UTC: weft shell job-1 --learner 2 looks inside, weft halt "
        "job-1 ends it"
    )


@pytest.mark.parametrize(
    ("job", "attempt"),
    [({"desired": Desired.HALTED}, {}), ({"max_runtime": 60.0}, {}), ({}, {"preempted_by": "job-2"})],
)
def test_the_failure_is_the_reason_whatever_ends_the_look_inside(job: dict[str, Any], attempt: dict[str, Any]) -> None:
    view = gang(keeping(0, ago=5), keeping(1, ago=10), alive(2, "n1", heard=1))
    assert view.attempt is not None
    view = replace(view, job=replace(view.job, **job), attempt=replace(view.attempt, **attempt))
    action = decide(view)
    assert isinstance(action, Settle)
    assert (action.outcome, action.reason) == (Outcome.FAILED, "learner 2: exit code 3"), "it failed first"
    assert view.attempt is not None
    closing = replace(view, attempt=replace(view.attempt, outcome=action.outcome, exit_code=3, reason=action.reason))
    assert conclude(closing).state is JobState.FAILED


def test_a_kept_learner_that_vanishes_has_failed_by_its_command() -> None:
    view = replace(gang(keeping(0, ago=90), seen=Observation("run")), exits={0: None})
    lost = replace(view, learners=(replace(view.learners[0], absences=9),))
    action = decide(lost)
    assert isinstance(action, Settle)
    assert (action.outcome, action.reason, action.exit_code) == (Outcome.FAILED, "learner 1: exit code 3", 3)


def test_a_lost_node_is_blamed_before_a_kept_learner_that_failed_for_it() -> None:
    away = LearnerObservation(1, LearnerState.RUNNING, unreachable=True, reason="node n2 does not answer")
    here = LearnerObservation(0, LearnerState.RUNNING)
    lost = replace(alive(1, "n2", heard=300), absences=9)
    view = replace(gang(keeping(0, ago=290), lost, seen=Observation("run", {0: here, 1: away})), exits={1: None})
    action = decide(view)
    assert isinstance(action, Settle)
    assert (action.outcome, action.rank) == (Outcome.INTERRUPTED, 1)
