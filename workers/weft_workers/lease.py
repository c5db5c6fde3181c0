"""Leases: one step at a time for a job (docs/leases.md). All times are the database's.

A step claims the job, works outside any transaction, and takes the row again to write back its result. A step that has
lost its lease meanwhile writes nothing.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import case, func, not_, or_, select, update
from sqlalchemy.orm import Session

from weft_core.store.database import Database
from weft_core.store.models import Job
from weft_core.store.queue import is_queued


class LeaseLost(Exception):
    """Raised instead of writing: the lease ran out and another worker took the job, or the job is gone."""


@dataclass
class Lease:
    """The right to step one job."""

    job_id: str
    token: str
    version: int
    due: datetime
    """The value that the claim gave ``next_step_at``: the lease's end, so that a step that dies is due again then. Any
    other value in the row means that somebody has asked for a step since."""
    now: datetime
    """The database's clock at the claim."""
    duration: timedelta


@dataclass
class Taken:
    """A leased job's row, locked until the caller's transaction ends."""

    session: Session
    job: Job
    asked: datetime | None
    """When somebody asked for another step since the claim. This step may have seen outdated data."""

    def release(self, next_in: float | None) -> bool:
        """Give the lease back; the job is due in ``next_in`` seconds (None: never by itself), or at once if somebody
        asked for that meanwhile. Returns whether it is due at once."""
        job = self.job
        job.lease_token = job.lease_owner = job.lease_until = None
        if self.asked is not None:
            job.next_step_at = self.asked
            return True
        job.next_step_at = None if next_in is None else func.now() + timedelta(seconds=next_in)
        return next_in == 0


def claim(session: Session, job_id: str, owner: str, seconds: float) -> Lease | None:
    """Lease a job that is due and free, else None: then there is nothing to do, or another worker does it. A job that
    waits for admission has no steps."""
    token, duration = uuid.uuid4().hex, timedelta(seconds=seconds)
    until = func.now() + duration
    row = session.execute(
        update(Job)
        .where(
            Job.id == job_id,
            Job.next_step_at <= func.now(),
            or_(Job.lease_until.is_(None), Job.lease_until < func.now()),
            not_(is_queued()),
        )
        .values(lease_token=token, lease_owner=owner, lease_until=until, next_step_at=until, version=Job.version + 1)
        .returning(Job.version, Job.next_step_at, func.now())
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if row is None:
        return None
    version, due, now = row
    assert due is not None  # it was set a moment ago
    return Lease(job_id, token, version, due, now, duration)


def renew(database: Database, lease: Lease) -> None:
    """Extend a lease before work that may take long.

    Raises:
        LeaseLost: it is somebody else's by now.
    """
    until = func.now() + lease.duration
    with database.transaction() as session:
        row = session.execute(
            update(Job)
            .where(Job.id == lease.job_id, Job.lease_token == lease.token, Job.version == lease.version)
            .values(
                lease_until=until,
                next_step_at=case((Job.next_step_at == lease.due, until), else_=Job.next_step_at),
            )
            .returning(Job.lease_until)
            .execution_options(synchronize_session=False)
        ).one_or_none()
    if row is None or row[0] is None:
        raise LeaseLost(lease.job_id)
    lease.due = row[0]  # a request that somebody left in next_step_at still differs from this


def take(session: Session, lease: Lease) -> Taken:
    """Lock the leased job's row, to write back. The caller ends with :meth:`Taken.release`.

    Raises:
        LeaseLost: it is somebody else's by now.
    """
    job = session.scalars(
        select(Job)
        .where(Job.id == lease.job_id, Job.lease_token == lease.token, Job.version == lease.version)
        .with_for_update()
    ).one_or_none()
    if job is None:
        raise LeaseLost(lease.job_id)
    return Taken(session, job, asked=None if job.next_step_at == lease.due else job.next_step_at)
