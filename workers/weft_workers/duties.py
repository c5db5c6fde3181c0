"""The duties of a sweeper that are due, found by two small statements instead of a transaction for each duty.

Each duty checks again, and claims its work. A duty that is called in vain does nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import and_, case, exists, func, or_, select

from weft_core.lifecycle.states import JobState
from weft_core.store.database import Database
from weft_core.store.models import Attempt, Delivery, Job, Queue, QueueChange, RuleFiring, ScheduleRow, SweepRow
from weft_core.store.predecessors import changed
from weft_workers.sweeping import ended_trials
from weft_workers.watching import EVERY

_RUNS = exists().where(
    Attempt.ended_at.is_(None),
    Attempt.launched_at.is_not(None),
    Job.id == Attempt.job_id,
    Job.engine == Queue.engine,
)
_QUEUES = select(
    Queue.engine,
    or_(Queue.next_pass_at <= func.now(), exists().where(QueueChange.engine == Queue.engine)),
    and_(
        or_(Queue.next_look_at.is_(None), Queue.next_look_at <= func.now()),
        exists().where(Job.engine == Queue.engine, Job.state == JobState.QUEUED.value),
    ),
    case((_RUNS, func.extract("epoch", func.coalesce(Queue.next_watch_at, func.now()) - func.now()))),
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
        exists().where(Job.state == JobState.QUEUED.value),
        exists().where(Attempt.ended_at.is_(None), Attempt.outcome.is_not(None)),
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


def find_queue_duties(database: Database, engines: Collection[str]) -> tuple[dict[str, QueueDuties], float]:
    """The duties of these engines, and the seconds until the next of them is to be watched. An engine of which nothing
    is known yet has all."""
    found, soonest = {}, float("inf")
    with database.autocommit() as connection:
        for engine, admit, observe, left in connection.execute(_QUEUES):
            watch = left is not None and left <= 0
            found[engine] = QueueDuties(admit, observe, watch)
            if left is not None and engine in engines:
                soonest = min(soonest, EVERY if watch else float(left))
    return {engine: found.get(engine, QueueDuties()) for engine in engines}, soonest


def find_other_duties(database: Database) -> tuple[OtherDuties, bool]:
    """The duties of the installation, and whether jobs wait or end: then the next duties are due in a moment."""
    with database.autocommit() as connection:
        *duties, is_busy = connection.execute(_OTHERS).one()
    return OtherDuties(*duties), is_busy
