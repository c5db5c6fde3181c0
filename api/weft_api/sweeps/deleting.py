"""The deletion of a sweep that has ended, alone or with its jobs."""

from __future__ import annotations

from weft_api.access.auth import Principal
from weft_api.context import Context
from weft_api.http.problems import CONFLICT, Problem
from weft_api.sweeps.service import find_sweep
from weft_core.lifecycle.states import Desired
from weft_core.store import jobs
from weft_core.store.models import Job, Trial

_BATCH = 100


def delete(context: Context, who: Principal, sweep_id: str, with_jobs: bool) -> None:
    """Delete a sweep and its trials. Its jobs go first, some in each transaction: if the process dies in between, the
    sweep is still there, and a second call deletes the rest.

    Raises:
        Problem: not_found; conflict (it has not ended).
    """
    with context.database.transaction() as session:
        sweep = find_sweep(who.scope(session), sweep_id)
        if sweep.ended_at is None:
            raise Problem(CONFLICT, f"the sweep is {sweep.state}: only a sweep that has ended can be deleted")
    while with_jobs and (deleted := _delete_jobs(context, who, sweep_id)):
        for job_id in deleted:
            context.wake.job(job_id)
    with context.database.transaction() as session:
        session.delete(find_sweep(who.scope(session), sweep_id, lock=True))


def _delete_jobs(context: Context, who: Principal, sweep_id: str) -> list[str]:
    """Let some of the jobs be deleted that are not to be yet. Returns their ids."""
    with context.database.transaction() as session:
        query = who.scope(session).select(Job, Job.desired != Desired.DELETED)
        mine = query.join(Trial, Trial.job_id == Job.id).where(Trial.sweep_id == sweep_id)
        found = session.scalars(mine.order_by(Job.id).limit(_BATCH).with_for_update(of=Job)).all()
        for job in found:
            jobs.request_delete(session, job, who.user_id)
        return [job.id for job in found]
