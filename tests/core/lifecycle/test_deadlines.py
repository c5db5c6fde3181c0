"""The next step of an attempt that runs undisturbed never comes later than a step could have found something."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.core.lifecycle.test_decide import NOW, learner_views, moments, observations

from weft_core.engine import LearnerObservation, LearnerState, Observation
from weft_core.lifecycle.actions import Pause
from weft_core.lifecycle.deadlines import HELD_POLL, LONGEST, POLL
from weft_core.lifecycle.decide import decide
from weft_core.lifecycle.notes import Notes, take_notes
from weft_core.lifecycle.sightings import Whereabouts, undisturbed
from weft_core.lifecycle.states import Desired, JobState, LearnerPhase
from weft_core.lifecycle.view import AttemptView, JobView, LearnerView, Sighting, View
from weft_core.rules import NoStepCondition
from weft_core.settings import TimingSettings


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def quiet(learners: int = 2, **job: Any) -> View:
    """A gang that runs, an hour after its start, and that the engine sees on the same nodes."""
    fields = {"state": JobState.PROCESSING, "desired": Desired.RUNNING, "retries": 0, "state_since": ago(3600), **job}
    seen = {rank: LearnerObservation(rank, LearnerState.RUNNING, node="n1") for rank in range(learners)}
    gang = tuple(
        LearnerView(
            rank,
            LearnerPhase.PROCESSING,
            started_at=ago(3600),
            heartbeat_at=ago(1),
            idle_since=ago(1),
            wrote=True,
            node="n1",
        )
        for rank in range(learners)
    )
    return View(
        NOW,
        TimingSettings(),
        JobView("job-1", "prj-1", "local", learners=learners, **fields),
        AttemptView("att-1", 1, "run", memory=1, launched_at=ago(3601)),
        gang,
        Sighting(Observation("run", seen), NOW),
    )


@st.composite
def running(draw: st.DrawFn) -> View:
    """A gang in any condition, often undisturbed."""
    n = draw(st.integers(1, 3))
    view = quiet(n, state=draw(st.sampled_from([JobState.DOWNLOADING, JobState.PROCESSING, JobState.STORING])))
    limits = st.sampled_from([None, 30.0, 600.0, 5000.0])
    job = replace(
        view.job,
        state_since=draw(moments),
        max_runtime=draw(limits),
        keepalive=(keepalive := draw(st.sampled_from([None, None, 60.0]))),
        keepalive_until=NOW + timedelta(seconds=draw(st.integers(0, 600))) if keepalive else None,
        idle_limit=draw(limits),
        active_at=draw(moments),
        step_rules=draw(st.sampled_from([(), ((0, NoStepCondition(seconds=600)), (1, NoStepCondition(seconds=90)))])),
        stepped_at=draw(st.none() | moments),
        manifest={"stall": draw(st.sampled_from([None, {"after_seconds": 60.0, "action": "end"}]))},
    )
    gang = view.learners
    if draw(st.booleans()):
        gang = tuple(draw(learner_views(rank)) for rank in range(n))
    gang = tuple(
        replace(
            learner,
            heartbeat_at=draw(st.sampled_from([learner.heartbeat_at, ago(600)])),
            idle_since=draw(st.none() | moments),
            wrote=draw(st.sampled_from([None, False, True])),
        )
        for learner in gang
    )
    seen = draw(st.just(view.sighting) | st.builds(Sighting, observations(n), st.just(NOW)))
    return replace(view, job=job, learners=gang, sighting=seen)


@settings(suppress_health_check=[*settings().suppress_health_check, HealthCheck.filter_too_much])
@given(running(), st.floats(0, 1))
def test_nothing_is_missed_before_the_next_step(view: View, part: float) -> None:
    """As long as there is no news, no earlier step would have had anything to do or to note."""
    action = decide(view)
    # A gang that is held in its engine's own queue is stepped every ten seconds, and each step notes that.
    assume(isinstance(action, Pause) and action.seconds > POLL and action.seconds != HELD_POLL)
    assert isinstance(action, Pause)
    assert view.sighting is not None
    now = NOW + timedelta(seconds=action.seconds * part)
    later = replace(view, now=now, sighting=replace(view.sighting, at=now))
    assert isinstance(decide(later), Pause)
    # A condition that holds now is noted now. A learner that is kept for a look inside is one.
    assert take_notes(later) == Notes(take_notes(view).condition)


def test_a_gang_without_limits_is_left_alone() -> None:
    timings = TimingSettings(stall=0, no_output=0)
    assert decide(replace(quiet(), timings=timings)) == Pause(LONGEST)


@pytest.mark.parametrize(
    ("job", "seconds"),
    [
        ({"max_runtime": 3700.0}, 100),
        ({"keepalive": 60.0, "keepalive_until": NOW + timedelta(seconds=20)}, 20),
        ({"idle_limit": 90.0, "active_at": ago(20)}, 70),
        ({"step_rules": ((0, NoStepCondition(seconds=600)),), "stepped_at": ago(500)}, 100),
        ({"manifest": {"stall": {"after_seconds": 60.0}}}, 59),
        ({"manifest": {"stall": {"after_seconds": 60.0, "action": "ignore"}}}, LONGEST),
    ],
)
def test_the_next_step_is_due_at_the_first_limit(job: dict[str, Any], seconds: float) -> None:
    pause = decide(quiet(**job))
    assert isinstance(pause, Pause)
    assert pause.seconds == pytest.approx(seconds)


def test_a_gang_that_may_have_written_nothing_is_looked_at_when_that_is_long_enough() -> None:
    view = quiet(state_since=ago(870))
    view = replace(view, learners=tuple(replace(learner, wrote=False) for learner in view.learners))
    pause = decide(view)
    assert isinstance(pause, Pause)
    assert pause.seconds == pytest.approx(30)


def test_behind_a_limit_the_next_heartbeat_may_decide_at_any_time() -> None:
    view = quiet(manifest={"stall": {"after_seconds": 60.0}})
    silent = tuple(replace(learner, heartbeat_at=ago(40), idle_since=ago(70)) for learner in view.learners)
    assert decide(replace(view, learners=silent)) == Pause(POLL)


@pytest.mark.parametrize(
    "change",
    [
        {"phase": LearnerPhase.WAITING},
        {"absences": 1},
        {"node": None},
        {"phase": LearnerPhase.EXITED, "exit_code": 3, "exited_at": NOW},
    ],
)
def test_a_disturbed_gang_is_stepped_often(change: dict[str, Any]) -> None:
    view = quiet()
    other = replace(view.learners[1], node="n2", heartbeat_at=ago(5))
    gang = (replace(view.learners[0], **change), other)
    assert view.sighting is not None
    assert view.sighting.observation is not None
    seen = view.sighting.observation
    moved = {**seen.learners, 1: replace(seen.learners[1], node="n2")}
    view = replace(view, learners=gang, sighting=Sighting(replace(seen, learners=moved), NOW))
    action = decide(view)
    assert not isinstance(action, Pause) or action == Pause(POLL)


SEEN = Observation("run", {0: LearnerObservation(0, LearnerState.RUNNING, node="n1")})


def changed(**how: Any) -> Observation:
    return replace(SEEN, learners={0: replace(SEEN.learners[0], **how)})


@pytest.mark.parametrize(
    ("run", "reported", "calm"),
    [
        (SEEN, False, True),
        (None, False, False),
        (None, True, False),
        (replace(SEEN, learners={}), False, False),
        (replace(SEEN, learners={}), True, True),
        (replace(SEEN, failed="no image"), False, False),
        (replace(SEEN, held="queue a"), False, False),
        (replace(SEEN, progress="building"), False, False),
        (changed(node="n2"), False, False),
        (changed(node=""), False, True),
        (changed(interrupted=True), False, False),
        (changed(unreachable=True), False, False),
        (changed(unreachable=True), True, True),
        (changed(state=LearnerState.EXITED), False, False),
        (changed(state=LearnerState.EXITED), True, True),
    ],
)
def test_what_the_watch_compares(run: Observation | None, reported: bool, calm: bool) -> None:
    assert undisturbed(run, [Whereabouts(0, "n1", reported)]) is calm
