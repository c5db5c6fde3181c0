"""One step of a job: claim, observe, decide, perform."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import structlog
from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.exc import DBAPIError
from structlog.contextvars import bound_contextvars

from weft_core.engine import EngineUnreachable
from weft_core.lifecycle.actions import SearchExits
from weft_core.lifecycle.decide import decide
from weft_core.lifecycle.view import ExitReport, Sighting, View
from weft_core.objects import StoreError, exit_key
from weft_core.store.models import Job
from weft_core.store.queue import is_queued, waits
from weft_workers.context import Context
from weft_workers.lease import Lease, LeaseLost, claim
from weft_workers.reconcile import perform
from weft_workers.reconcile.admit import ask
from weft_workers.reconcile.load import load_view
from weft_workers.reconcile.writing import trouble

log = structlog.get_logger(__name__)

_PATIENCE = 5.0
"""Seconds that one call goes on stepping a job that has something to do at once, or in a moment."""


def step(context: Context, job_id: str, linger: bool = True) -> None:
    """Step a job as long as there is something to do at once. A job that is not due, or that another worker has, is
    left alone. Never raises for trouble with a job: that is logged, and tried again later.

    Args:
        linger: also wait here for work that is due in a moment, say the end of processes that have reported their end.
    """
    end = time.monotonic() + _PATIENCE
    again: float | None = 0.0
    queued = False
    while again is not None and time.monotonic() + again < end and (linger or not again):
        time.sleep(again)
        try:
            claimed = _claim(context, job_id)
            if claimed is not None:
                again = _step_once(context, *claimed)
            elif not queued and _queue(context, job_id):
                queued, again = True, 0.0
            else:
                again = None
        except DBAPIError as error:
            # The sweep comes back to it when Postgres does.
            log.warning("the database is in trouble", job=job_id, error=str(error.orig).strip().partition("\n")[0])
            return


def _claim(context: Context, job_id: str) -> tuple[Lease, View] | None:
    """None: the job is not due, waits in its queue, or another worker has it."""
    timings = context.settings.timings
    with context.database.transaction() as session:
        lease = claim(session, job_id, context.owner, timings.lease)
        return None if lease is None else (lease, load_view(session, job_id, lease.now, timings))


def _step_once(context: Context, lease: Lease, view: View) -> float | None:
    """One step of a claimed job; returns in how many seconds to step again right here, or None to leave it to a hint or
    the sweep."""
    with bound_contextvars(job=lease.job_id, attempt=view.attempt.n if view.attempt else 0):
        try:
            return _work(context, lease, view)
        except LeaseLost:
            log.warning("lease lost: another worker has the job, or it is gone")
            return None
        except Exception:
            log.exception("step failed")
            _put_off(context, lease)
            return None


def _queue(context: Context, job_id: str) -> bool:
    """If the job waits and asks for its turn: have its queue planned, which admits it if there is room. Returns
    whether that was done."""
    free = or_(Job.lease_until.is_(None), Job.lease_until < func.now())
    due = (Job.id == job_id, Job.next_step_at <= func.now(), free)
    with context.database.transaction() as session:
        # For a job that is in the queue already, its client should have given a sign of life by now. A job that waits
        # for others is in no queue.
        known = or_(and_(waits(), Job.keepalive_until.is_not(None), Job.place.is_not(None)), Job.predecessors > 0)
        heard = update(Job).where(*due, is_queued(), known)
        session.execute(heard.values(next_step_at=Job.keepalive_until).execution_options(synchronize_session=False))
        engine = session.scalars(select(Job.engine).where(*due, waits())).one_or_none()
    return engine is not None and ask(context, engine, job_id)


def _work(context: Context, lease: Lease, view: View) -> float | None:
    view = _observe(context, view)
    while isinstance(action := decide(view), SearchExits):
        try:
            view = replace(view, exits={**view.exits, **_search_exits(context, view, action.ranks)})
        except StoreError as error:
            # Unknown is not dead: no learner is declared lost before S3 was searched for its report.
            return trouble(context, lease, f"can't search for exit reports: {error}")
    log.debug("step", state=view.job.state.value, action=action)
    with context.metrics.steps.labels(type(action).__name__).time():
        return perform.perform(context, lease, view, action)


def _observe(context: Context, view: View) -> View:
    """Add the engine's answer, if an attempt runs there and its outcome is still open."""
    attempt = view.open
    if attempt is None or attempt.outcome is not None or attempt.launched_at is None:
        return view
    if all(learner.succeeded for learner in view.learners):
        return view
    # A failure is judged by a fresh answer of the engine, which may have interrupted the learner itself.
    fresh = any(learner.reported for learner in view.learners)
    try:
        seen = context.engine(view.job.engine).observe(fresh)
    except EngineUnreachable as error:
        return replace(view, unreachable=str(error) or "no answer")
    asked = view.now - timedelta(seconds=seen.age)
    return replace(view, sighting=Sighting(seen.answer.get(attempt.run_name), asked))


def _search_exits(context: Context, view: View, ranks: Iterable[int]) -> dict[int, ExitReport | None]:
    """Read the exit reports of learners that are gone without a report to the API."""
    assert view.attempt is not None
    found: dict[int, ExitReport | None] = {}
    for rank in ranks:
        key = exit_key(view.job.project_id, view.job.id, view.attempt.n, rank)
        try:
            report = json.loads(context.objects.get(key))
            found[rank] = ExitReport(int(report["exit_code"]), str(report.get("reason") or ""))
        except StoreError as error:
            if error.kind not in {"not_found", "no_container"}:
                raise
            found[rank] = None
        except (ValueError, TypeError, KeyError, AttributeError):
            log.warning("an exit report is unreadable", key=key)
            found[rank] = None
    return found


def _put_off(context: Context, lease: Lease) -> None:
    """Give the lease back after an unexpected error; if that fails too, it runs out by itself."""
    try:
        trouble(context, lease, "an unexpected error of the service, whose log says more; it tries again")
    except Exception as error:
        log.warning("the lease could not be given back and runs out by itself", error=str(error))
