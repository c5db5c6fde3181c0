"""An engine's queue: which jobs are in it, and the changes for which admission plans it anew (docs/leases.md)."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_core.lifecycle.states import Desired, JobState
from weft_core.store.models import Job, Project, QueueChange


def waits() -> ColumnElement[bool]:
    """Whether a job waits for admission. It then has no step of its own: the pass over its engine's queue admits it."""
    return and_(is_queued(), Job.predecessors == 0)


def is_queued() -> ColumnElement[bool]:
    """Whether a job waits for admission, or for jobs that must end before. A job that is to end, or whose client has
    been silent for too long, waits for nothing."""
    return and_(
        Job.state == JobState.QUEUED.value,
        Job.desired == Desired.RUNNING.value,
        or_(Job.keepalive_until.is_(None), Job.keepalive_until > func.now()),
    )


def note_change(session: Session, engine: str) -> None:
    """Something has changed that may let a job of this engine start: its queue is planned again after the commit."""
    session.execute(insert(QueueChange).values(engine=engine))


def note_change_everywhere(session: Session) -> None:
    """Something has changed for all engines, such as a quota: the queues in which jobs wait are planned again."""
    engines = select(Job.engine).where(Job.state == JobState.QUEUED.value).distinct()
    session.execute(insert(QueueChange).from_select(["engine"], engines))


def note_roles(session: Session, projects: Collection[str]) -> None:
    """Members of these projects (ids) have other roles, and so other caps: the queues in which their jobs wait are
    planned again."""
    capped = select(Project.id).where(Project.id.in_(projects), Project.caps != {})
    engines = select(Job.engine).where(Job.state == JobState.QUEUED.value, Job.project_id.in_(capped)).distinct()
    session.execute(insert(QueueChange).from_select(["engine"], engines))
