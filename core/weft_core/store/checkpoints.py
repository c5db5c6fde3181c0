"""Jobs that begin with another job's checkpoint (``jobs.checkpoint_of``). A rerun gets a copy. A trial of a population
shares the stored files: it reads them where the other job has stored them, and they stay until it has ended."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from weft_core.lifecycle.states import TERMINAL, Desired
from weft_core.store.models import Job


def shared_checkpoint(source: str) -> dict[str, Any]:
    """The value of ``jobs.checkpoint_of`` of a job that begins with the last checkpoint of the job ``source``."""
    return {"job": source, "shared": True}


def shared_source(job: Job) -> str | None:
    """The id of the job whose stored checkpoint ``job`` begins with; None: it has none, or a copy."""
    told = job.checkpoint_of or {}
    return str(told["job"]) if told.get("shared") else None


def reader_of(session: Session, job: Job) -> str | None:
    """The id of a job that has not ended, and that begins with a stored checkpoint of ``job``."""
    live = Job.state.not_in([state.value for state in TERMINAL])
    mine = (Job.project_id == job.project_id, live, Job.desired != Desired.DELETED.value)
    shares = (Job.checkpoint_of["job"].astext == job.id, Job.checkpoint_of["shared"].as_boolean())
    return session.scalar(select(Job.id).where(*mine, *shares).order_by(Job.id).limit(1))
