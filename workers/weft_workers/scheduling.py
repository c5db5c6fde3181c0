"""Starts the jobs of schedules. Runs beside the sweeper.

A schedule's due time, its job and the row of the start are committed together, under the lock of the schedule's row.
"""

from __future__ import annotations

from datetime import timedelta

import structlog
from sqlalchemy import func, select, update
from sqlalchemy.exc import DBAPIError

from weft_core.schedules import advance
from weft_core.store.models import ScheduleRow
from weft_workers.context import Context

log = structlog.get_logger(__name__)

_BATCH = 100
_AGAIN = timedelta(seconds=10)
"""After trouble with one schedule."""


class Schedules:
    """The schedules of an installation, as one worker starts their jobs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def run_due(self) -> None:
        """Make the jobs of the times that have come, and of the promotions since the last call."""
        due = select(ScheduleRow.id).where(ScheduleRow.next_step_at <= func.now()).order_by(ScheduleRow.next_step_at)
        with self._context.database.transaction() as session:
            found = session.scalars(due.limit(_BATCH)).all()
        for schedule_id in found:
            try:
                self.move(schedule_id)
            except DBAPIError:
                raise
            except Exception:  # the others go on
                log.exception("a schedule could not be moved on", schedule=schedule_id)
                self._put_off(schedule_id)

    def move(self, schedule_id: str) -> None:
        """Move a schedule on, unless another worker does that just now."""
        with self._context.database.transaction() as session:
            mine = select(ScheduleRow).where(ScheduleRow.id == schedule_id).with_for_update(skip_locked=True)
            row = session.scalars(mine).one_or_none()
            if row is None:
                return
            woken = advance(session, self._context.settings, self._context.box, row)
        for job_id in woken:
            self._context.wake.job(job_id)

    def _put_off(self, schedule_id: str) -> None:
        with self._context.database.transaction() as session:
            later = update(ScheduleRow).where(ScheduleRow.id == schedule_id)
            session.execute(later.values(next_step_at=func.now() + _AGAIN))
