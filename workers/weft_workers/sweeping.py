"""Moves sweeps on: closes trials that have ended, and begins the next ones. Runs beside the sweeper.

A sweep is moved on in one transaction, which holds the lock of its row. The trial, its job and the sweep's counters
are committed together, so a worker that is killed leaves all of it or nothing, and two workers never ask for the same
trial.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import structlog
from sqlalchemy import Select, func, or_, select, update
from sqlalchemy.exc import DBAPIError

from weft_core.manifest import ManifestError
from weft_core.secrets import SecretsUnreadable
from weft_core.store.jobs import Conflict, request_halt
from weft_core.store.models import Job, SweepRow, SweepState, Trial, TrialState
from weft_core.sweeps.trials import Kit, advance, end, to_halt
from weft_workers.context import Context

log = structlog.get_logger(__name__)

_BATCH = 100
_AGAIN = timedelta(seconds=10)
"""After trouble with one sweep."""


def ended_trials() -> Select[str]:
    """The ids of the sweeps of which a trial's job has ended or is gone."""
    return (
        select(Trial.sweep_id)
        .distinct()
        .outerjoin(Job, Job.id == Trial.job_id)
        .where(Trial.state == TrialState.RUNNING, Trial.runs)
        .where(or_(Trial.job_id.is_(None), Job.ended_at.is_not(None)))
    )


class Sweeps:
    """The sweeps of an installation, as one worker moves them on."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kit = Kit(context.settings, context.box)

    def run_due(self) -> None:
        """Move on the sweeps that are due, and those whose trials have ended."""
        for sweep_id in self._find():
            try:
                self.move(sweep_id)
            except DBAPIError:
                raise
            except Exception:  # the others go on
                log.exception("a sweep could not be moved on", sweep=sweep_id)
                self._put_off(sweep_id)

    def move(self, sweep_id: str) -> None:
        """Move a sweep on, unless another worker does that just now."""
        woken: list[str] = []
        with self._context.database.transaction() as session:
            mine = select(SweepRow).where(SweepRow.id == sweep_id).with_for_update(skip_locked=True)
            sweep = session.scalars(mine).one_or_none()
            if sweep is None:
                return
            try:
                with session.begin_nested():
                    woken = advance(session, self._kit, sweep)
            except (ManifestError, SecretsUnreadable) as error:
                end(sweep, SweepState.FAILED, f"its next trial can't be submitted: {error}")
            stopping = sweep.state == SweepState.STOPPING
        for job_id in woken:
            self._context.wake.job(job_id)
        if stopping:
            self._halt(sweep_id)

    def _halt(self, sweep_id: str) -> None:
        """A transaction for each job: a sweep's lock is never held while that of a job is waited for."""
        with self._context.database.transaction() as session:
            jobs = to_halt(session, sweep_id)
        for job_id in jobs:
            with self._context.database.transaction() as session:
                job = session.scalars(select(Job).where(Job.id == job_id).with_for_update()).one_or_none()
                if job is not None:
                    with suppress(Conflict):  # it has ended by itself
                        request_halt(session, job, reason=f"halted by its sweep, {sweep_id}, which ends")
            self._context.wake.job(job_id)

    def _find(self) -> list[str]:
        due = select(SweepRow.id).where(SweepRow.next_step_at <= func.now()).order_by(SweepRow.next_step_at)
        with self._context.database.transaction() as session:
            found = [*session.scalars(due.limit(_BATCH)), *session.scalars(ended_trials().limit(_BATCH))]
        return list(dict.fromkeys(found))

    def _put_off(self, sweep_id: str) -> None:
        with self._context.database.transaction() as session:
            later = update(SweepRow).where(SweepRow.id == sweep_id)
            session.execute(later.values(next_step_at=func.now() + _AGAIN))
