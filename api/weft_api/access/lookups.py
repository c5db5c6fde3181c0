"""Rows of the caller's project, by the id in a request."""

from __future__ import annotations

from weft_api.http.problems import not_found
from weft_core.service_log import note
from weft_core.store.models import Job
from weft_core.store.scope import Scope


def find_job(scope: Scope, job_id: str, *, lock: bool = False) -> Job:
    """The job of this project with this id. Raises Problem not_found."""
    # No other text is the id of a job, so the database is not asked.
    if not job_id.isascii() or len(job_id) > 100 or "\0" in job_id:
        raise not_found("job", job_id[:100])
    job = scope.find(Job, Job.id == job_id, lock=lock)
    if job is None:
        raise not_found("job", job_id)
    note(job=job.id, attempt=job.attempt)
    return job
