"""The next action for a job: pure functions of a :class:`View`, the heart of the reconciler."""

from __future__ import annotations

from datetime import datetime

from weft_core.engine import LearnerState, Observation
from weft_core.lifecycle.actions import (
    GANG_GRACE,
    SHORT_GRACE,
    Action,
    Admit,
    Close,
    Conclusion,
    Decision,
    HaltQueued,
    Launch,
    LaunchMore,
    Pause,
    Purge,
    Rest,
    Settle,
)
from weft_core.lifecycle.advance import advance
from weft_core.lifecycle.budgets import over_budget
from weft_core.lifecycle.deadlines import next_step_in
from weft_core.lifecycle.elastic import decide_members, decide_more
from weft_core.lifecycle.failures import find_failure, headline, kept_failure, seek_reports
from weft_core.lifecycle.progress import check_progress
from weft_core.lifecycle.rules import check_rules
from weft_core.lifecycle.sightings import missing
from weft_core.lifecycle.states import TERMINAL, Desired, JobState, Outcome
from weft_core.lifecycle.view import AttemptView, View, preemption_words
from weft_core.words import duration

SOON, MOMENT = 0.1, 0.3
"""Delays after all learners have reported their ends: their processes are gone in a moment, and the step itself waits
for that. Pods take longer. The sweeper then watches all ending runs together, because a step that waits holds up
others."""
CLOSING_POLL = 1.0


class Inconsistent(Exception):
    """Raised for rows that contradict each other: somebody edited the database."""


# --- which action -------------------------------------------------------------------------------------------------


def decide(view: View) -> Decision:
    """The next action for a job; or a search for facts that the decision needs first."""
    job = view.job
    if job.state in TERMINAL:
        return Purge() if job.desired is Desired.DELETED else Rest()
    if job.state is JobState.QUEUED:
        return _decide_queued(view)
    attempt = view.open
    if attempt is None:
        raise Inconsistent(f"job {job.id} is {job.state} and has no open attempt")
    if attempt.outcome is not None:
        return _close(view, attempt)
    end, failure = _decide_end(view, attempt), kept_failure(view)
    if failure and isinstance(end, Settle) and end.outcome is not Outcome.DELETED:
        return failure.settle(end.grace)  # whatever ends the look inside, the attempt has failed before
    due = end or _decide_by_engine(view, attempt)
    due = due or advance(job.state, [learner.phase for learner in view.gang])
    if not failure:
        due = due or check_rules(view) or decide_more(view) or check_progress(view, attempt)
    return due or Pause(next_step_in(view))


def _decide_queued(view: View) -> Action:
    if view.job.desired is Desired.DELETED:
        return Purge()
    if view.job.desired is Desired.HALTED:
        return HaltQueued(view.job.halt_reason)
    if reason := abandoned(view):
        return HaltQueued(reason)
    left = backoff_left(view)
    return Pause(left) if left > 0 else Admit()


def _decide_end(view: View, attempt: AttemptView) -> Action | None:
    """Decisions that need no observation: success, the user's request, a time limit; or a launch that is due."""
    if view.gang and all(learner.succeeded for learner in view.gang):
        return Settle(Outcome.SUCCEEDED, "all learners exited with code 0", SHORT_GRACE, exit_code=0)
    if view.job.desired is Desired.DELETED:
        return Settle(Outcome.DELETED, "deleted by request", view.grace(SHORT_GRACE))
    if view.job.desired is Desired.HALTED:
        return Settle(Outcome.HALTED, view.job.halt_reason, view.grace())
    if reason := abandoned(view):
        return Settle(Outcome.HALTED, reason, view.grace(GANG_GRACE))
    # It saves as at a halt, and its room is free when its learners are gone. A job that is STORING ends soon anyway.
    if attempt.preempted_by and view.job.state is not JobState.STORING:
        return Settle(Outcome.INTERRUPTED, preemption_words(attempt.preempted_by), view.grace())
    if attempt.launched_at is None:
        return Launch()
    if view.job.elastic and (more := tuple(member.rank for member in view.members if member.launched_at is None)):
        return LaunchMore(more)
    if (limit := view.job.max_runtime) and (started := _all_started(view)) and view.since(started) > limit:
        return Settle(Outcome.FAILED, f"max_runtime of {duration(limit)} exceeded", view.grace())
    if reason := over_budget(view):
        return Settle(Outcome.HALTED, reason, view.grace())
    return None


def abandoned(view: View) -> str | None:
    """Why nobody needs the job any more: its client is silent, or it is idle. None: it is in use, or has no limit."""
    job = view.job
    if job.keepalive and job.keepalive_until and view.now > job.keepalive_until:
        return f"the program that launched it has not been heard of for {duration(job.keepalive)}"
    idle = view.since(job.active_at) if job.active_at and job.state is JobState.PROCESSING else 0.0
    if job.idle_limit and idle > job.idle_limit:
        return f"idle for {duration(job.idle_limit)}: nothing was printed, no CPU or GPU used"
    return None


def _decide_by_engine(view: View, attempt: AttemptView) -> Decision | None:
    """Decisions that need an observation; unknown is not dead."""
    sighting = view.sighting
    assert attempt.launched_at is not None  # _decide_end has launched
    if view.unreachable or sighting is None or sighting.at <= attempt.launched_at:
        return None
    seen = sighting.observation
    if view.rounds:
        return decide_members(view)
    if seen and seen.failed:
        return Settle(Outcome.FAILED, seen.failed, SHORT_GRACE, error_code=seen.failed_code or "S101")
    if seen and (taken := next((learner for learner in seen.learners.values() if learner.interrupted), None)):
        what = taken.reason or "its engine took it back"
        # The others may still save a checkpoint, and so may this one.
        reason = f"learner {taken.rank + 1} was interrupted: {what}"
        return Settle(Outcome.INTERRUPTED, reason, view.grace(GANG_GRACE))
    silent = frozenset(
        learner.rank for learner in view.learners if not learner.reported and missing(view, learner.rank)
    )
    if reports := seek_reports(view, silent):
        return reports
    if failure := find_failure(view, silent):
        return failure.settle(view.grace(GANG_GRACE))
    return _start_timeout(view, attempt, seen)


def _all_started(view: View) -> datetime | None:
    """When the last learner got its start grant; None: some learners have none."""
    starts = [learner.started_at for learner in view.gang if learner.started_at is not None]
    return max(starts) if starts and len(starts) == len(view.gang) else None


def _start_timeout(view: View, attempt: AttemptView, seen: Observation | None) -> Action | None:
    started = sum(learner.granted for learner in view.learners)
    assert attempt.launched_at is not None
    # While an image is being built and says so, or the engine's own queue holds it back, nothing has timed out.
    since = max(filter(None, (attempt.launched_at, view.progress_at, attempt.held_at)))
    if started == len(view.learners) or view.since(since) <= view.timings.start_timeout or (seen and seen.held):
        return None
    hints = [learner.reason for learner in seen.learners.values() if learner.reason] if seen else []
    why = f": {hints[0]}" if hints else ""
    return Settle(
        Outcome.INTERRUPTED,
        f"only {started} of {len(view.learners)} learners started within {duration(view.timings.start_timeout)}{why}",
        SHORT_GRACE,
    )


# --- the end of an attempt ---------------------------------------------------------------------------------------


def _close(view: View, attempt: AttemptView) -> Close:
    since = view.since(attempt.stop_requested_at) if attempt.stop_requested_at else 0.0
    grace = SHORT_GRACE if attempt.grace is None else attempt.grace
    if view.job.desired is Desired.DELETED:
        grace = min(grace, SHORT_GRACE)
    exited = all(member.reported for member in view.members)
    return Close(max(0.0, grace - since), SOON if exited and since < MOMENT else CLOSING_POLL)


def confirmed_gone(view: View, seen: Observation | None, grace: float) -> bool:
    """Whether nothing is left of a run whose end is decided, according to an observation after the stop.

    A learner on a node that does not answer can't be confirmed gone. The end does not wait for that node if the learner
    has reported its exit or is silent, or if its grace is over: its token starts and stores nothing any more.

    Args:
        view: of the job.
        seen: the engine's answer.
        grace: seconds left to the learners.
    """
    # A run that is known but has no learners yet may still get some: only a failed one surely won't.
    if seen is None or seen.failed:
        return True
    living = [learner for learner in seen.learners.values() if learner.state is not LearnerState.EXITED]
    return bool(seen.learners) and all(learner.unreachable and _fenced(view, learner.rank, grace) for learner in living)


def _fenced(view: View, rank: int, grace: float) -> bool:
    learner = next((learner for learner in view.learners if learner.rank == rank), None)
    if grace <= 0 or learner is None or learner.reported:
        return True
    return learner.heartbeat_at is None or view.since(learner.heartbeat_at) > view.timings.silence


def conclude(view: View) -> Conclusion:
    """The job's next state, now that its attempt is over."""
    job, attempt = view.job, view.attempt
    assert attempt is not None
    reason, code = attempt.reason, attempt.error_code
    if job.desired is Desired.DELETED:
        return Conclusion(JobState.HALTED, "stopped to be deleted", failures=job.failures, next_in=0)
    match attempt.outcome:
        case Outcome.SUCCEEDED:
            return Conclusion(JobState.COMPLETED, "completed", failures=job.failures)
        case Outcome.FAILED | Outcome.LOST:
            return _conclude_failed(view, attempt, reason, code)
        case Outcome.HALTED:
            state = JobState.HALTED
        case Outcome.INTERRUPTED if attempt.preempted:
            state = JobState.QUEUED
        case Outcome.INTERRUPTED | Outcome.DELETED:
            state, reason = JobState.QUEUED, f"starts again: {reason}"
        case None:
            raise Inconsistent(f"attempt {attempt.n} of job {job.id} is to end without an outcome")
    if job.desired is Desired.HALTED:
        return Conclusion(JobState.HALTED, job.halt_reason, failures=job.failures)
    again = backoff(attempt, job.failures) if state is JobState.QUEUED else None
    return Conclusion(state, reason, failures=job.failures, next_in=again)


def _conclude_failed(view: View, attempt: AttemptView, reason: str, code: str | None) -> Conclusion:
    job, failures = view.job, view.job.failures + 1
    retryable = attempt.outcome is Outcome.LOST or attempt.exit_code is not None
    if not retryable or failures > job.retries:
        return Conclusion(JobState.FAILED, reason, code, failures)
    if job.desired is Desired.HALTED:
        return Conclusion(JobState.HALTED, job.halt_reason, failures=failures)
    again = f"retry {failures} of {job.retries} after: {headline(reason)}"
    return Conclusion(JobState.QUEUED, again, failures=failures, next_in=backoff(attempt, failures))


def backoff(attempt: AttemptView, failures: int) -> float:
    """Seconds that a job waits after this attempt before the next: a job that fails at once must not spin.

    A user's resume resets the count of failures, so the job does not wait.
    """
    match attempt.outcome:
        case Outcome.FAILED | Outcome.LOST if failures:
            return float(min(60, 2 ** (min(failures, 7) - 1)))
        case Outcome.INTERRUPTED if not attempt.preempted:
            return float(min(60, 2 ** (min(attempt.n, 7) - 1)))
        case _:
            return 0.0


def backoff_left(view: View) -> float:
    """Seconds until a queued job may be admitted again."""
    if view.attempt is None or view.attempt.ended_at is None:
        return 0.0
    return max(0.0, backoff(view.attempt, view.job.failures) - view.since(view.attempt.ended_at))
