"""Jobs whose image or packages are still being made: they wait in the queue, and meanwhile hold no room."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from weft_core.engine import Capacity, Preparation
from weft_core.store.jobs import record_event
from weft_core.store.models import Job
from weft_workers.context import Context
from weft_workers.observing import ObservedEngine
from weft_workers.reconcile.packages import await_packages
from weft_workers.reconcile.queue import considered


def prepare(context: Context, engine: ObservedEngine, capacity: Capacity) -> Mapping[str, Preparation]:
    """Have what waiting jobs lack made: their images by the engine, their packages by a build.

    Returns:
        The jobs that can't start yet, and why, by id.

    Raises:
        EngineUnreachable: the engine does not answer.
    """
    return {**await_packages(context, engine.name), **_prepare_images(engine, context, capacity)}


def _prepare_images(engine: ObservedEngine, context: Context, capacity: Capacity) -> Mapping[str, Preparation]:
    """Have the engine make the images that waiting jobs lack, and no others."""
    if not engine.prepares:
        return {}
    image = Job.manifest["framework"]["image"].astext.label("image")
    waiting = (
        select(Job.id, image)
        .where(Job.id.in_(select(considered(engine.name).c.id)), image.not_in(capacity.images or ()))
        .order_by(Job.priority.desc(), Job.created_at, Job.id)
    )
    with context.database.transaction() as session:
        jobs = {row.id: str(row.image) for row in session.execute(waiting)}
    return engine.prepare(jobs)


def note_progress(session: Session, job: Job, preparation: Preparation) -> None:
    """Show how far it is, as the job's reason and in its events."""
    job.condition = None
    if job.reason != preparation.progress:
        job.reason = preparation.progress
        record_event(session, job, preparation.kind, preparation.progress)
