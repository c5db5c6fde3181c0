"""The end of an attempt: its outcome is written down, what is left of it is stopped, and the job goes on or ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import structlog
from sqlalchemy import func
from sqlalchemy.orm import Session

from weft_core.engine import EngineUnreachable, Observation
from weft_core.lifecycle.actions import Close, Settle
from weft_core.lifecycle.blame import blamed_by_end
from weft_core.lifecycle.deadlines import UNREACHABLE_POLL
from weft_core.lifecycle.decide import conclude, confirmed_gone
from weft_core.lifecycle.failures import with_log
from weft_core.lifecycle.notes import new_nodes
from weft_core.lifecycle.states import Desired, Outcome
from weft_core.lifecycle.view import AttemptView, View
from weft_core.store import budgets
from weft_core.store.blames import blame
from weft_core.store.jobs import record_event, transition
from weft_core.store.models import Attempt, Job
from weft_core.store.queue import note_change
from weft_core.store.shares import record_use
from weft_workers.context import Context
from weft_workers.lease import Lease, take
from weft_workers.reconcile.writing import apply_notes, last_lines, note_nodes, set_condition, tell_ended, write_down

log = structlog.get_logger(__name__)


def settle(context: Context, lease: Lease, view: View, verdict: Settle) -> float | None:
    """Write the outcome down. From here on heartbeats answer 'stop', and the next step stops what is left."""
    attempt = view.open
    assert attempt is not None
    with context.database.transaction() as session:
        taken = take(session, lease)
        if taken.asked is not None:
            # A report or a request came in since, so the basis of this verdict is outdated.
            taken.release(0)
            return 0
        apply_notes(session, taken.job, view)
        row = session.get_one(Attempt, attempt.id)
        reason, lines = verdict.reason, []
        if verdict.rank is not None:
            lines = last_lines(session, view, attempt, verdict.rank)
            reason = with_log(reason, lines)
        row.outcome, row.reason = verdict.outcome.value, reason
        row.error_code, row.exit_code = verdict.error_code, verdict.exit_code
        row.grace_seconds = round(verdict.grace)
        if row.stop_requested_at is None:
            row.stop_requested_at = func.now()
        if (node := blamed_by_end(view, verdict)) is not None:
            blame(session, taken.job, attempt.n, node, verdict.reason)
        _tell_outcome(session, taken.job, verdict, lines, preempted=replace(attempt, reason=verdict.reason).preempted)
        taken.release(0)
    context.wake.changed(view.job.id)
    log.info("outcome", outcome=verdict.outcome.value, reason=verdict.reason)
    return 0


def _tell_outcome(session: Session, job: Job, verdict: Settle, lines: list[str], preempted: bool) -> None:
    match verdict.outcome:
        case Outcome.SUCCEEDED:
            return
        case Outcome.INTERRUPTED if preempted:
            record_event(session, job, "stopping", f"{verdict.reason}: up to {verdict.grace:g} s for a last checkpoint")
        case Outcome.HALTED | Outcome.DELETED:
            record_event(session, job, "stopping", f"stopping: up to {verdict.grace:g} s for a last checkpoint")
        case _:
            data = {
                "outcome": verdict.outcome.value,
                "learner": None if verdict.rank is None else verdict.rank + 1,
                "exit_code": verdict.exit_code,
                "last_lines": lines,
            }
            record_event(session, job, "learner" if verdict.rank is not None else "warning", verdict.reason, data=data)


def close(context: Context, lease: Lease, view: View, action: Close) -> float | None:
    """Stop what is left of the run. When the engine has nothing of it any more, the attempt ends."""
    attempt = view.open
    assert attempt is not None
    try:
        engine = context.engine(view.job.engine)
        engine.stop(attempt.run_name, timedelta(seconds=action.grace))
        seen = engine.observe(fresh=True).answer.get(attempt.run_name)
    except EngineUnreachable as error:
        return write_down(context, lease, replace(view, unreachable=str(error)), UNREACHABLE_POLL)
    if confirmed_gone(view, seen, action.grace):
        return _finish(context, lease, view, attempt, seen)
    again = write_down(context, lease, view, action.seconds)
    return action.seconds if again is None and action.seconds < 0.5 else again


def _finish(context: Context, lease: Lease, view: View, attempt: AttemptView, seen: Observation | None) -> float | None:
    """Nothing is left on the engine: end the attempt, and let the job go on or end."""
    with context.database.transaction() as session:
        taken = take(session, lease)
        job = taken.job
        # The row is fresh and locked: the user's latest request counts.
        end = conclude(replace(view, job=replace(view.job, desired=Desired(job.desired))))
        row = session.get_one(Attempt, attempt.id)
        record_use(session, context.settings.fair_share, row)
        if attempt.budget:
            budgets.settle(session, row)
        row.ended_at = func.now()
        note_nodes(session, attempt.id, new_nodes(view, seen))  # of learners that ended before any other observation
        set_condition(session, job, None)
        job.failures = end.failures
        transition(session, job, end.state, end.reason, end.error_code)
        note_change(session, view.job.engine)
        again = taken.release(end.next_in)
    log.info("attempt ended", state=end.state.value, reason=end.reason)
    context.metrics.attempts.labels(view.job.engine, attempt.outcome.value if attempt.outcome else "unknown").inc()
    tell_ended(context, view)
    return 0 if again else None
