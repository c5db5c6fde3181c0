"""The decisions as functions: for every view there could be, one that the life cycle allows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from weft_core.engine import LearnerObservation, LearnerState, Observation
from weft_core.lifecycle import ACTIVE, TERMINAL, TRANSITIONS, Desired, JobState, LearnerPhase, Outcome
from weft_core.settings import TimingSettings
from weft_workers.reconcile.actions import (
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
from weft_workers.reconcile.decide import Inconsistent, conclude, confirmed_gone, decide
from weft_workers.reconcile.notes import take_notes
from weft_workers.reconcile.view import AttemptView, ExitReport, JobView, LearnerView, Sight, View

NOW = datetime(2026, 1, 31, 8, 15, tzinfo=UTC)
moments = st.integers(0, 2000).map(lambda seconds: NOW - timedelta(seconds=seconds))


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


@st.composite
def learner_views(draw: st.DrawFn, rank: int) -> LearnerView:
    phase = draw(st.sampled_from(LearnerPhase))
    exited = phase is LearnerPhase.EXITED
    return LearnerView(
        rank=rank,
        phase=phase,
        started_at=draw(moments) if phase is not LearnerPhase.WAITING else None,
        heartbeat_at=draw(maybe(moments)),  # type: ignore[arg-type]
        absences=draw(st.integers(0, 5)),
        exit_code=draw(st.sampled_from([0, 0, 1, 137, -9])) if exited else None,
        exit_reason=draw(maybe(st.sampled_from(["exit code 3", "killed by signal 9 (SIGKILL)", "S302 no data"])))  # type: ignore[arg-type]
        if exited
        else None,
        exited_at=draw(moments) if exited else None,
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
            interrupted=ended and draw(st.integers(0, 5)) == 0,
        )
    progress = draw(st.sampled_from(["", "", "building"]))
    return Observation("run", seen, progress=progress, failed=draw(st.sampled_from(["", "", "", "no image"])))


@st.composite
def views(draw: st.DrawFn, kind: Literal["any", "running", "closing"] = "any") -> View:
    state = draw(st.sampled_from([one for one in JobState if kind == "any" or one in ACTIVE]))
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
        launched_at=launched,  # type: ignore[arg-type]
        stop_requested_at=draw(moments) if outcome else None,
        grace=draw(st.sampled_from([None, 5.0, 120.0])),
        outcome=outcome,  # type: ignore[arg-type]
        exit_code=draw(st.sampled_from([None, 3])),
        ended_at=None if active else draw(moments),
    )
    sight = unreachable = None
    if launched and draw(st.booleans()):
        sight = Sight(draw(observations(n)), draw(moments | st.just(NOW)))
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
        sight,
        unreachable,
        exits=exits,  # type: ignore[arg-type]
    )


@given(views())
def test_every_decision_is_one_that_the_state_allows(view: View) -> None:
    action = decide(view)
    job, attempt = view.job, view.open
    if job.state in TERMINAL:
        assert isinstance(action, Purge if job.desired is Desired.DELETED else Rest), "terminal states absorb"
    elif job.state is JobState.QUEUED:
        wanted = {Desired.DELETED: Purge, Desired.HALTED: HaltQueued, Desired.RUNNING: (Admit, Pause)}
        assert isinstance(action, wanted[job.desired])
    else:
        assert attempt is not None
        assert isinstance(action, Close) == (attempt.outcome is not None), "one outcome, decided once"
        assert not isinstance(action, Admit | Purge | HaltQueued | Rest), "an open attempt is ended first"
    match action:
        case Advance(state):
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
    """Without an answer that is newer than the launch, nothing is concluded from the engine."""
    attempt = view.open
    assert attempt is not None
    assert attempt.launched_at is not None
    stale = view.sight is None or view.sight.at <= attempt.launched_at
    assume(view.unreachable or stale)
    action = decide(view)
    assert not isinstance(action, SearchExits | RecordExits)
    if isinstance(action, Settle):
        own = {Outcome.SUCCEEDED, Outcome.HALTED, Outcome.DELETED}
        assert action.outcome in own or "max_runtime" in action.reason
    assert take_notes(view).absences == {}


@given(views("running"))
def test_nobody_is_lost_before_the_store_was_searched(view: View) -> None:
    action = decide(view)
    if isinstance(action, Settle) and action.outcome is Outcome.LOST:
        assert action.rank in view.exits
        assert view.exits[action.rank] is None


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
    view = View(NOW, TimingSettings(), job, attempt, (LearnerView(0),), Sight(None, NOW - timedelta(seconds=1)))
    assert decide(view) == Pause(2.0)
    assert take_notes(view).absences == {}
    after = replace(view, sight=Sight(None, NOW + timedelta(seconds=1)))
    assert decide(after) == SearchExits(frozenset({0}))
    assert take_notes(after).absences == {0: 1}


def test_a_known_run_without_learners_is_not_gone_unless_it_failed() -> None:
    assert confirmed_gone(None)
    assert not confirmed_gone(Observation("run", progress="building"))
    assert confirmed_gone(Observation("run", failed="no image"))
    assert not confirmed_gone(Observation("run", {0: LearnerObservation(0, LearnerState.RUNNING)}))
    assert confirmed_gone(Observation("run", {0: LearnerObservation(0, LearnerState.EXITED)}))
