"""Jobs whose image or packages are still being made: they wait in the queue, and meanwhile hold no room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from weft_core.engine import Capacity, Preparation
from weft_core.store.models import Job, Overlay, OverlayState
from weft_workers.context import Context
from weft_workers.observing import ObservedEngine
from weft_workers.reconcile.packages import await_packages
from weft_workers.waiting import among


@dataclass(frozen=True)
class Prepared:
    """The findings about the jobs of a queue that lacked an image or packages."""

    unready: Mapping[str, Preparation]
    """The jobs that can't start yet, and why."""
    ready: frozenset[str]
    """The jobs whose engine or packages were asked about, and which can start."""


def prepare(context: Context, engine: ObservedEngine, capacity: Capacity) -> Prepared:
    """Have the missing parts of waiting jobs made: their images by the engine, their packages by a build.

    Raises:
        EngineUnreachable: the engine does not answer.
    """
    packages, images = await_packages(context, engine.name), _lacking(context, engine, capacity)
    unready = {job_id: why for job_id, why in packages.items() if why is not None}
    unready |= engine.prepare(images) if engine.prepares else {}
    return Prepared(unready, frozenset((packages.keys() | images.keys()) - unready.keys()))


def _lacking(context: Context, engine: ObservedEngine, capacity: Capacity) -> Mapping[str, str]:
    """The images of waiting jobs that the engine may have to make, by the job's id, in the order of the queue."""
    if not engine.prepares:
        return {}
    with context.database.transaction() as session:
        images = context.requests.images(session, engine.name)
    there = capacity.images or frozenset()
    return {job_id: image for job_id, image in images.items() if image not in there}


def unasked(
    session: Session, engine: ObservedEngine, capacity: Capacity, prepared: Prepared, jobs: list[Job]
) -> set[str]:
    """The ids of the jobs that were submitted since, so that nobody has asked yet for the parts that they lack."""
    new = {job.id: job for job in jobs if job.id not in prepared.ready}
    lacking = {job_id for job_id, job in new.items() if engine.prepares and _image(job) not in (capacity.images or ())}
    waiting = {job_id for job_id, job in new.items() if job.overlay_id is not None}
    built = select(Job.id).join(Overlay, Overlay.id == Job.overlay_id).where(Overlay.state != OverlayState.READY)
    return lacking | (set(session.scalars(built.where(among(Job.id, waiting)))) if waiting else set())


def _image(job: Job) -> str:
    return str(job.manifest["framework"]["image"])
