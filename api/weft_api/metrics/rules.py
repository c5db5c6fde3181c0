"""Rules about metrics: ``metric loss is nan``; and when the last value came, for rules such as ``no step for 10m``."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func
from sqlalchemy.orm import Session

from weft_api.metrics.records import Record, shown_name
from weft_core.rules import MetricCondition, NoStepCondition, conditions
from weft_core.store.models import Job, MetricCursor
from weft_core.store.rules import note_firing


def check_rules(session: Session, job: Job, cursor: MetricCursor, records: Sequence[Record]) -> None:
    """Note the rules of the job's manifest that these new records fulfil, in the transaction that appends them."""
    if not job.manifest.get("rules"):
        return
    if records and conditions(job.manifest, NoStepCondition):
        cursor.stepped_at = func.now()
    for index, condition in conditions(job.manifest, MetricCondition):
        for record in records:
            value = _fulfilling(record, condition)
            if value is not None:
                step = "" if record.step is None else f" at step {record.step}"
                found = f"{condition.name} was {value:g}{step} (learner {record.rank + 1})"
                note_firing(session, job, index, record.attempt, found)
                break


def _fulfilling(record: Record, condition: MetricCondition) -> float | None:
    values = (value for name, value in record.numbers() if shown_name(record.group, name) == condition.name)
    return next((value for value in values if condition.holds(value)), None)
