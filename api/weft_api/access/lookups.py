"""Rows of the caller's project, by the id in a request."""

from __future__ import annotations

from typing import Any

from weft_api.http.problems import not_found
from weft_core.service_log import note
from weft_core.store.models import Job
from weft_core.store.scope import Row, Scope


def find_row(scope: Scope, model: type[Row], row_id: str, noun: str, *, lock: bool = False) -> Row:
    """The row of this project with this id.

    Args:
        noun: for the table's rows, in the refusal.

    Raises:
        Problem: not_found.
    """
    column: Any = model
    # No other text is an id, so the database is not asked.
    row = None
    if row_id.isascii() and len(row_id) <= 100 and "\0" not in row_id:
        row = scope.find(model, column.id == row_id, lock=lock)
    if row is None:
        raise not_found(noun, row_id[:100])
    return row


def find_job(scope: Scope, job_id: str, *, lock: bool = False) -> Job:
    """The job of this project with this id. Raises Problem not_found."""
    job = find_row(scope, Job, job_id, "job", lock=lock)
    note(job=job.id, attempt=job.attempt)
    return job
