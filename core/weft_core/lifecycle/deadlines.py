"""When a running attempt needs its next step. Pure functions of a view.

An attempt that runs undisturbed needs no step until it may reach a time limit. Everything else is a change, and changes
make a job due: reports and requests through the API, and news from its engine through the workers' watch
(docs/leases.md#jobs-that-run).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from weft_core.lifecycle.budgets import budget_end
from weft_core.lifecycle.progress import no_output_due, stall_due
from weft_core.lifecycle.rules import rules_due
from weft_core.lifecycle.sightings import Whereabouts, undisturbed
from weft_core.lifecycle.states import JobState
from weft_core.lifecycle.view import View

POLL = 2.0
"""Seconds between two steps of an attempt that starts, ends, or is disturbed."""
UNREACHABLE_POLL = 5.0
HELD_POLL = 10.0
"""While an engine's own queue holds a run back; its learners' start makes the job due at once."""
LONGEST = 300.0
"""The most seconds until the next step of an undisturbed attempt."""


def next_step_in(view: View) -> float:
    """Seconds until the next step of a job for which there is nothing to do now."""
    if not _runs_by_itself(view):
        return _poll(view)
    left = [-view.since(moment) for moment in limits(view)]
    # Behind a limit, its rule waits for something that can come at any time, such as a heartbeat.
    return _poll(view) if any(seconds <= 0 for seconds in left) else min([LONGEST, *left])


def _poll(view: View) -> float:
    if view.unreachable:
        return UNREACHABLE_POLL
    held = view.sighting and view.sighting.observation and view.sighting.observation.held
    return HELD_POLL if held else POLL


def _runs_by_itself(view: View) -> bool:
    """Whether its next step may wait for a change."""
    attempt = view.open
    if attempt is None or view.job.elastic or view.job.state is JobState.PENDING:
        return False
    if attempt.stalled_at is not None or attempt.look_at is not None:
        return False
    if not all(learner.granted and not learner.absences for learner in view.learners):
        return False
    if any(learner.reported and not learner.succeeded for learner in view.learners):
        return False  # a failure that waits for a verdict
    if view.unreachable:
        # Its condition is written by this step. When the engine answers again, the watch makes the job due.
        return True
    if view.sighting is None or attempt.launched_at is None or view.sighting.at <= attempt.launched_at:
        return False
    where = (Whereabouts(learner.rank, learner.node, learner.reported) for learner in view.learners)
    return undisturbed(view.sighting.observation, where)


def limits(view: View) -> Iterator[datetime]:
    """The moments at which a rule about time may first hold, by what is known now. News can only put them off."""
    job = view.job
    starts = [learner.started_at for learner in view.gang if learner.started_at is not None]
    if job.max_runtime and starts:
        yield max(starts) + timedelta(seconds=job.max_runtime)
    if (used_up := budget_end(view)) is not None:
        yield used_up
    if job.keepalive and job.keepalive_until:
        yield job.keepalive_until
    if job.state is not JobState.PROCESSING or view.kept:
        return
    if job.idle_limit and job.active_at:
        yield job.active_at + timedelta(seconds=job.idle_limit)
    for moment in (*rules_due(view), stall_due(view), no_output_due(view)):
        if moment is not None:
            yield moment
