"""Which jobs of an engine's queue are considered at a time."""

from __future__ import annotations

from sqlalchemy import Subquery, func, select, true

from weft_core.lifecycle.states import Desired, JobState
from weft_core.store.models import Job, Project

CONSIDERED = 1000
"""So many waiting jobs are considered; the others are behind them in the queue."""


def considered(engine: str) -> Subquery:
    """The ids of these jobs: the first of each project, then the second of each, and so on. One project's jobs, however
    many, never push out another's."""
    order = (Job.priority.desc(), Job.created_at, Job.id)
    own = (
        select(Job.id, Job.created_at, func.row_number().over(order_by=order).label("turn"))
        .where(Job.engine == engine, Job.project_id == Project.id)
        .where(Job.state == JobState.QUEUED.value, Job.desired == Desired.RUNNING.value)
        .order_by(*order)
        .limit(CONSIDERED)
        .lateral("own")
    )
    first = select(own.c.id).select_from(Project).join(own, true())
    return first.order_by(own.c.turn, own.c.created_at, own.c.id).limit(CONSIDERED).subquery("considered")
