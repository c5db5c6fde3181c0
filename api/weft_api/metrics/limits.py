"""What is left out of a job's metrics when they have reached a limit, and the remarks about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy.orm import Session

from weft_core.settings import LimitSettings
from weft_core.store.jobs import record_event
from weft_core.store.models import Job, MetricCursor

_LIMITS: Mapping[str, str] = {
    "points": "the job has reported its limit of {metric_points_per_job:,} values: the rest is dropped",
    "bytes": "the job's metrics have reached their limit of {metric_bytes_per_job:,} bytes: the rest is dropped",
    "system": "the job's system metrics have reached their limit of {system_points_per_job:,} values: the rest is "
    "dropped",
    "series": "the job has its limit of {metric_series_per_job:,} metrics (each learner's and attempt's counted): "
    "further names are dropped",
}
"""By the reasons in a cursor's ``dropped``."""


def told(reason: str, limits: LimitSettings) -> str:
    """The remark about a reason in a cursor's ``dropped``."""
    return _LIMITS[reason].format(**limits.model_dump())


def note_drops(
    session: Session, job: Job, cursor: MetricCursor, attempt: int, reasons: Iterable[str], limits: LimitSettings
) -> None:
    """Note limits that the job has reached, and tell the user of each once. The transaction has locked ``cursor``."""
    for reason in reasons:
        if reason not in cursor.dropped:
            cursor.dropped = [*cursor.dropped, reason]
            record_event(session, job, "warning", told(reason, limits), attempt=attempt)
