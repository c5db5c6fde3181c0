"""Lets jobs start that wait for other jobs. Runs beside the sweeper."""

from __future__ import annotations

from weft_core.store.predecessors import changed, settle
from weft_workers.context import Context

_BATCH = 200


def follow(context: Context) -> None:
    """Put the jobs whose predecessors have ended into their queues, and fail those that will never start. A transaction
    for each job: a failed one may be the predecessor of others, which the next call finds."""
    with context.database.transaction() as session:
        found = session.scalars(changed().limit(_BATCH)).all()
    for job_id in found:
        with context.database.transaction() as session:
            starts = settle(session, job_id)
        context.wake.changed(job_id)
        if starts:
            context.wake.job(job_id)
