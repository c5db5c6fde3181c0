"""The duties of a sweeper that are due, found by two small statements instead of a transaction for each duty.

Each duty checks again, and claims its work. A duty that is called in vain does nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import and_, exists, func, or_, select

from weft_core.lifecycle.states import JobState
from weft_core.store.database import Database
from weft_core.store.models import Attempt, Delivery, Job, Queue, QueueChange, RuleFiring, ScheduleRow, SweepRow
from weft_core.store.predecessors import changed
from weft_workers.sweeping import ended_trials

_QUEUES = select(
    Queue.engine,
    or_(Queue.next_pass_at <= func.now(), exists().where(QueueChange.engine == Queue.engine)),
    and_(
        or_(Queue.next_look_at.is_(None), Queue.next_look_at <= func.now()),
        exists().where(Job.engine == Queue.engine, Job.state == JobState.QUEUED.value),
    ),
    and_(
        or_(Queue.next_watch_at.is_(None), Queue.next_watch_at <= func.now()),
        exists().where(
            Attempt.ended_at.is_(None),
            Attempt.launched_at.is_not(None),
            Job.id == Attempt.job_id,
            Job.engine == Queue.engine,
        ),
    ),
)
_OTHERS = select(
    select(Attempt.id)
    .join(Job, Job.id == Attempt.job_id)
    .where(Attempt.ended_at.is_(None), Attempt.outcome.is_not(None), Job.lease_until.is_(None))
    .exists(),
    or_(exists().where(RuleFiring.acted_at.is_(None)), exists().where(Delivery.next_try_at <= func.now())),
    or_(exists().where(SweepRow.next_step_at <= func.now()), ended_trials().exists()),
    changed().exists(),
    exists().where(ScheduleRow.next_step_at <= func.now()),
    or_(
        exists().where(Job.next_step_at.is_not(None)),
        exists().where(Job.state == JobState.QUEUED.value),
        exists().where(Attempt.ended_at.is_(None)),
    ),
)


class QueueDuties(NamedTuple):
    """Of an engine: whether to plan its queue, to observe its capacity, and to watch its runs."""

    admit: bool = True
    observe: bool = True
    watch: bool = True


class OtherDuties(NamedTuple):
    endings: bool
    deliveries: bool
    sweeps: bool
    predecessors: bool
    schedules: bool


def find_queue_duties(database: Database, engines: Collection[str]) -> dict[str, QueueDuties]:
    """The duties of these engines. An engine of which nothing is known yet has all."""
    with database.autocommit() as connection:
        found = {engine: QueueDuties(*duties) for engine, *duties in connection.execute(_QUEUES)}
    return {engine: found.get(engine, QueueDuties()) for engine in engines}


def find_other_duties(database: Database) -> tuple[OtherDuties, bool]:
    """The duties of the installation, and whether it has an open job."""
    with database.autocommit() as connection:
        *duties, is_open = connection.execute(_OTHERS).one()
    return OtherDuties(*duties), is_open
