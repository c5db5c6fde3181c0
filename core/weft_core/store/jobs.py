"""The verbs that change a job. Each runs in the caller's transaction and writes its event there too.

The API submits jobs and sets ``desired``. Only the workers change ``state``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func
from sqlalchemy.orm import Session

from weft_core.ids import new_id
from weft_core.lifecycle.states import RESUMABLE, TERMINAL, Desired, JobState, check_transition
from weft_core.manifest.sweep_models import Value, written
from weft_core.store.checkpoints import reader_of
from weft_core.store.models import Event, Job, LogCursor, Model, ModelVersion, RuleFiring
from weft_core.store.notifications import queue_state
from weft_core.store.registry import register, registered_name
from weft_core.store.scope import Scope


class Conflict(Exception):
    """The request does not fit the job's state; the message names both."""


def record_event(
    session: Session,
    job: Job,
    kind: str,
    message: str,
    *,
    attempt: int | None = None,
    state: JobState | None = None,
    data: Mapping[str, Any] | None = None,
    by: str | None = None,
) -> Event:
    """Append to the job's history. An event with a ``state`` also goes to the targets of the manifest's ``notify`` that
    ask for this state.

    Args:
        message: for the user.
        attempt: its number; default: the job's newest.
        by: the id of the user who caused the event; None: Weft, or a learner.
    """
    event = Event(
        project_id=job.project_id,
        job_id=job.id,
        attempt=job.attempt or None if attempt is None else attempt,
        kind=kind,
        state=state.value if state else None,
        message=message,
        data=dict(data or {}),
        user_id=by,
    )
    session.add(event)
    if state is not None:
        queue_state(session, job, event)
    return event


def submit(scope: Scope, job: Job, notes: list[str]) -> Job:
    """Insert a new job as QUEUED, with its log cursor and its first events; due at once.

    Args:
        scope: the tenant's door.
        job: filled in but for ``id``, unless the caller needed the id before.
        notes: what the manifest's reader wants the user to know; become events.
    """
    session = scope.session
    if not job.id:
        job.id = new_id("job")
    job.state, job.desired = JobState.QUEUED.value, Desired.RUNNING.value
    job.reason, job.attempt, job.failures = "waiting for admission", 0, 0
    scope.add(job)
    keep_alive(job)
    session.flush()
    scope.add(LogCursor(job_id=job.id))
    record_event(session, job, "submitted", f"submitted to engine {job.engine}", state=JobState.QUEUED, by=job.user_id)
    for note in notes:
        record_event(session, job, "note", note)
    return job


def credentials_name(job_id: str, data_store_id: str) -> str:
    """The name of the secret with the credentials of a manifest's connection. Names of users' secrets have no slash."""
    return f"{job_id}/{data_store_id}"


def transition(session: Session, job: Job, after: JobState, reason: str, error_code: str | None = None) -> None:
    """Move a job along the table of transitions, with its event. A COMPLETED job's results become a version of the
    model that its manifest names.

    Raises:
        IllegalTransition: the table does not have it.
    """
    before = JobState(job.state)
    check_transition(before, after)
    now = func.now()
    job.state, job.reason, job.error_code, job.state_since = after.value, reason, error_code, now
    if after is JobState.PROCESSING and job.started_at is None:
        job.started_at = now
    if after in TERMINAL:
        job.ended_at, job.next_step_at, job.condition, job.place = now, None, None, None
    if after is JobState.COMPLETED and (name := registered_name(job.manifest)):
        record_registration(session, job, *register(session, job, name)[:2])
    record_event(session, job, "state", reason, state=after, data={"from": before.value, "error_code": error_code})


def record_registration(session: Session, job: Job, model: Model, version: ModelVersion, by: str | None = None) -> None:
    """Record in the job's history which model its results have become a version of."""
    told = {"model": model.name, "version": version.number}
    record_event(session, job, "model", f"registered as {model.name}@{version.number}", data=told, by=by)


def due(job: Job) -> None:
    """Make a job due at once; wake the workers after the commit."""
    job.next_step_at = func.now()


def keep_alive(job: Job) -> None:
    """Move on the moment at which a job ends whose client is not heard of any more; no change for any other job.

    Raises:
        Conflict: it has ended, or is to end.
    """
    if job.desired != Desired.RUNNING or job.state in TERMINAL:
        raise Conflict(f"the job is {job.state if job.state in TERMINAL else 'to end'}: there is nothing to keep alive")
    if job.keepalive_seconds is not None:
        job.keepalive_until = func.now() + timedelta(seconds=job.keepalive_seconds)


def request_halt(session: Session, job: Job, by: str | None = None, reason: str | None = None) -> None:
    """Ask for the job to be halted; a job that is halted or being halted is left as it is.

    Args:
        reason: ``halted by …``, if something else than the user halts the job.

    Raises:
        Conflict: it has ended otherwise, or is being deleted.
    """
    if job.desired == Desired.DELETED:
        raise Conflict("the job is being deleted")
    if job.state == JobState.HALTED or (job.desired == Desired.HALTED and job.state not in TERMINAL):
        return
    if job.state in TERMINAL:
        raise Conflict(f"the job is {job.state} already: there is nothing to halt")
    job.desired, job.halt_reason = Desired.HALTED.value, reason
    due(job)
    record_event(session, job, "desired", f"to be {reason}" if reason else "halt requested", by=by)


def request_resume(session: Session, job: Job, by: str | None = None) -> None:
    """Open a halted or failed job again, as QUEUED: its next attempt starts from the last checkpoint. ``by``: a user's
    id.

    Raises:
        Conflict: it is not halted or failed, or a halt is still under way.
    """
    if job.desired == Desired.DELETED:
        raise Conflict("the job is being deleted")
    state = JobState(job.state)
    if state not in TERMINAL:
        if job.desired == Desired.HALTED:
            raise Conflict("the job is still being halted; resume it once it is HALTED")
        return
    if state not in RESUMABLE:
        raise Conflict(f"the job is {state}: only a HALTED or FAILED job can be resumed (`rerun` starts it anew)")
    _open_again(session, job, "resumed", by)


def reopen(session: Session, job: Job, parameters: Mapping[str, Value]) -> None:
    """Open a completed job again, as QUEUED, with some other parameters: its next attempt starts from the last
    checkpoint. Only a sweep does that, with a trial that goes on to its next rung.

    Raises:
        Conflict: it is not completed, or is being deleted.
    """
    if job.state != JobState.COMPLETED or job.desired != Desired.RUNNING:
        raise Conflict(f"the job is {job.state}, desired is {job.desired}: only a COMPLETED one goes on")
    job.manifest = {**job.manifest, "parameters": {**job.manifest.get("parameters", {}), **parameters}}
    aim = ", ".join(f"{name} = {written(value)}" for name, value in parameters.items())
    _open_again(session, job, f"goes on to {aim}", None)


def _open_again(session: Session, job: Job, why: str, by: str | None) -> None:
    """A new beginning, not a transition of the table: the retries start over."""
    before = job.state
    job.state, job.desired, job.reason = JobState.QUEUED.value, Desired.RUNNING.value, f"{why}; waiting for admission"
    job.state_since, job.ended_at, job.error_code, job.failures = func.now(), None, None, 0
    job.halt_reason = None
    session.execute(delete(RuleFiring).where(RuleFiring.job_id == job.id))  # they guard the new beginning, too
    if job.predecessors:
        job.reason = f"{why}; waiting for the jobs before it"
    keep_alive(job)
    due(job)
    record_event(session, job, "state", why, state=JobState.QUEUED, data={"from": before}, by=by)


def request_delete(session: Session, job: Job, by: str | None = None) -> None:
    """Ask for the job to be deleted: stopped first if it runs, then removed with its logs; idempotent. ``by``: a user's
    id.

    Raises:
        Conflict: another job that has not ended begins with its checkpoint.
    """
    if job.desired == Desired.DELETED:
        return
    if (reader := reader_of(session, job)) is not None:
        raise Conflict(f"job {reader} begins with its checkpoint and has not ended: halt or delete that job first")
    job.desired = Desired.DELETED.value
    due(job)
    record_event(session, job, "desired", "delete requested", by=by)
