"""Jobs that start after other jobs (``after`` in the manifest).

Until those have ended, such a job is QUEUED, and is not in its engine's queue. What decides is the state of the rows:
a worker that dies in the middle of a transaction has done nothing, and the next one finds the same jobs again.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import Session, aliased

from weft_core.lifecycle.states import TERMINAL, JobState
from weft_core.manifest import After
from weft_core.store.jobs import record_event, transition
from weft_core.store.models import Job, Predecessor
from weft_core.store.queue import is_queued, note_change
from weft_core.store.scope import Scope
from weft_core.words import count

_TERMINAL = tuple(state.value for state in TERMINAL)
_OVER = (JobState.COMPLETED.value, JobState.FAILED.value)
_VERBS = {"completed": "complete", "failed": "fail", "ended": "end"}
_NAMED = 3
"""So many predecessors are named in a reason."""


def add_predecessors(scope: Scope, job: Job, after: Sequence[After]) -> None:
    """Let a job that is being inserted wait for other jobs of its project. The caller has found that they exist."""
    for entry in after:
        scope.add(Predecessor(job_id=job.id, predecessor_id=entry.job, ending=entry.on))
    if after:
        job.predecessors = len(after)
        job.reason = _waiting([(entry.job, entry.on) for entry in after])
        job.next_step_at = job.keepalive_until
        record_event(scope.session, job, "waiting", job.reason)


def never_starts(ending: str, state: str | None) -> str | None:
    """Why a job never starts if its predecessor must end as ``ending`` says and is in ``state`` (None: deleted). None:
    it may still start. A halted predecessor may be resumed."""
    if state is None:
        return "was deleted"
    return f"is {state}" if state in _OVER and not _is_met(ending, state) else None


def changed() -> Select[str]:
    """The ids of the waiting jobs of which a predecessor has ended or is gone."""
    before = aliased(Job)
    halted = and_(before.state == JobState.HALTED.value, Predecessor.ending == "ended")
    decided = or_(before.id.is_(None), before.state.in_(_OVER), halted)
    return (
        select(Job.id)
        .distinct()
        .select_from(Predecessor)
        .join(Job, Job.id == Predecessor.job_id)
        .outerjoin(before, before.id == Predecessor.predecessor_id)
        .where(Predecessor.ended_at.is_(None), *_waits(), decided)
    )


def settle(session: Session, job_id: str) -> bool:
    """Let a job enter its queue if its predecessors have ended as they had to. Fail it if that can't happen any more.

    Returns:
        Whether the job is to be stepped now.
    """
    mine = select(Job).where(Job.id == job_id, *_waits()).with_for_update(skip_locked=True)
    job = session.scalars(mine).one_or_none()
    if job is None:
        return False
    open_ = (
        select(Predecessor, Job.state)
        .outerjoin(Job, Job.id == Predecessor.predecessor_id)
        .where(Predecessor.job_id == job_id, Predecessor.ended_at.is_(None))
        .order_by(Predecessor.predecessor_id)
    )
    left = []
    for row, state in session.execute(open_):
        if state is not None and _is_met(row.ending, state):
            row.ended_at = func.now()
        else:
            left.append((row, state))
    for row, state in left:
        if why := never_starts(row.ending, state):
            reason = f"{row.predecessor_id} {why}, and this job starts only when it has {row.ending}"
            transition(session, job, JobState.FAILED, reason)
            return False
    job.predecessors = len(left)
    if left:
        job.reason = _waiting([(row.predecessor_id, row.ending) for row, _ in left])
        return False
    job.reason, job.state_since, job.next_step_at = "waiting for admission", func.now(), func.now()
    record_event(session, job, "waiting", "the jobs before it have ended: waiting for admission")
    note_change(session, job.engine)
    return True


def _waits() -> tuple[ColumnElement[bool], ...]:
    return is_queued(), Job.predecessors > 0, or_(Job.lease_until.is_(None), Job.lease_until < func.now())


def _is_met(ending: str, state: str) -> bool:
    return state in _TERMINAL and (ending == "ended" or ending.upper() == state)


def _waiting(left: Sequence[tuple[str, str]]) -> str:
    named = [f"{job} to {_VERBS[ending]}" for job, ending in left[:_NAMED]]
    more = f" and {count(len(left) - _NAMED, 'other job')}" if len(left) > _NAMED else ""
    return f"waiting for {', '.join(named)}{more}"
