"""The writes that effects of several kinds share: the view's notes, the condition, the news of an end."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from weft_core.lifecycle.notes import take_notes
from weft_core.lifecycle.view import AttemptView, View
from weft_core.store.jobs import record_event
from weft_core.store.models import Attempt, Job, Learner, LogChunk
from weft_workers.context import Context
from weft_workers.lease import Lease, take
from weft_workers.reconcile.admit import admit

_TROUBLE_POLL = 10.0
"""Seconds until something that failed for reasons outside the job is tried again."""


def trouble(context: Context, lease: Lease, condition: str) -> float | None:
    """Nothing can be known or done just now: show why, and try again later."""
    with context.database.transaction() as session:
        taken = take(session, lease)
        set_condition(session, taken.job, condition)
        return 0 if taken.release(_TROUBLE_POLL) else None


def write_down(context: Context, lease: Lease, view: View, next_in: float | None) -> float | None:
    """Write the notes alone; ``next_in``: seconds until the job's next step."""
    with context.database.transaction() as session:
        taken = take(session, lease)
        apply_notes(session, taken.job, view)
        return 0 if taken.release(next_in) else None


def last_lines(session: Session, view: View, attempt: AttemptView, rank: int) -> list[str]:
    """The end of a learner's log: as it reported it, else what has arrived of it."""
    if reported := view.learners[rank].last_lines:
        return reported.splitlines()
    newest = (
        select(LogChunk.body)
        .where(LogChunk.job_id == view.job.id, LogChunk.attempt == attempt.n, LogChunk.rank == rank)
        .order_by(LogChunk.first_line.desc())
        .limit(3)
    )
    return b"".join(reversed(list(session.scalars(newest)))).decode(errors="replace").splitlines()[-10:]


def tell_ended(context: Context, view: View) -> None:
    """Wake followers, and note the change, so that waiting jobs get the room that may be free."""
    context.wake.changed(view.job.id)
    admit(context, view.job.engine)


def apply_notes(session: Session, job: Job, view: View) -> None:
    notes = take_notes(view)
    set_condition(session, job, notes.condition)
    if notes.reason and job.reason != notes.reason:
        job.reason = notes.reason
    if notes.progress:
        record_event(session, job, "image", notes.progress)
    if view.attempt is None:
        return
    note_nodes(session, view.attempt.id, notes.nodes)
    if notes.held:
        session.get_one(Attempt, view.attempt.id).held_at = func.now()
    for rank, absences in notes.absences.items():
        row = session.get_one(Learner, (view.attempt.id, rank))
        row.absences = absences
        row.absent_since = (row.absent_since or func.now()) if absences else None


def note_nodes(session: Session, attempt_id: str, nodes: Mapping[int, str]) -> None:
    for rank, node in nodes.items():
        session.get_one(Learner, (attempt_id, rank)).node = node


def set_condition(session: Session, job: Job, condition: str | None) -> None:
    if job.condition == condition:
        return
    record_event(session, job, "condition", condition or f"no longer: {job.condition}")
    job.condition = condition
