"""The results of package builds, for the jobs that wait for their overlays (docs/packages.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from weft_core.engine import Preparation
from weft_core.lifecycle.states import JobState, Outcome
from weft_core.objects import StoreError, overlay_key, results_prefix
from weft_core.store.jobs import record_event
from weft_core.store.models import Attempt, Job, Learner, LogChunk, Overlay, OverlayState
from weft_core.store.packages import build_again, describe_lock
from weft_core.store.queue import waits
from weft_core.store.scope import Scope
from weft_workers.context import Context

log = structlog.get_logger(__name__)

_MOST_BUILDS = 3
"""Of one overlay, while learners are lost that can't be blamed on the packages."""
_LOCK_BYTES = 4 << 20
_TALK = "packages: "
"""The beginning of a build's own message about its failure (weft_trainer.packages.build)."""
_WAITING = Preparation("packages: waiting for the build", kind="packages", error_code="C102")


class _Pin(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str = Field(max_length=200)
    version: str = Field(max_length=200)
    source: str = Field(default="", max_length=2000)
    replaces: str = Field(default="", max_length=200)
    hashes: list[Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]] = Field(default=[], max_length=1000)


class _Outcome(BaseModel):
    """``lock.json``, as the build wrote it. The project's own code ran there, so it may hold anything."""

    model_config = ConfigDict(extra="ignore")

    packages: list[_Pin] = Field(max_length=5000)
    lock_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    known: bool = False
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    size: int = Field(default=0, ge=0)


def await_packages(context: Context, engine: str) -> Mapping[str, Preparation | None]:
    """The progress of the packages that the jobs of an engine's queue lacked a moment ago, by the job's id; None: they
    are there now."""
    waiting = (
        select(Job.id, Overlay.id)
        .join(Overlay, Overlay.id == Job.overlay_id)
        .where(Job.engine == engine, waits(), Overlay.state != OverlayState.READY)
        .order_by(Job.priority.desc(), Job.created_at, Job.id)
    )
    with context.database.transaction() as session:
        rows = [(job_id, overlay_id) for job_id, overlay_id in session.execute(waiting)]
    found = {overlay_id: _check(context, overlay_id) for overlay_id in dict.fromkeys(overlay for _, overlay in rows)}
    return {job_id: found[overlay_id] for job_id, overlay_id in rows}


def _check(context: Context, overlay_id: str) -> Preparation | None:
    """How far an overlay is; None: it is there. An ended build is taken over."""
    with context.database.transaction() as session:
        overlay = session.get_one(Overlay, overlay_id)
        if overlay.state == OverlayState.READY:
            return None
        if overlay.state != OverlayState.BUILDING:
            return replace(_WAITING, failed=f"packages: {overlay.reason or 'they are not there any more'}")
        build = session.get(Job, overlay.job_id)
        if build is not None and build.state == JobState.COMPLETED:
            place = build.project_id, build.id
        elif build is not None and build.state not in (JobState.FAILED, JobState.HALTED):
            return replace(_WAITING, progress=_progress(session, build))
        else:
            place = None
    return _fail(context, overlay_id) if place is None else _take_over(context, overlay_id, *place)


def _progress(session: Session, build: Job) -> str:
    if build.state in (JobState.QUEUED, JobState.PENDING):
        return f"packages: job {build.id} is {build.state}: {build.reason}"
    lines = _last_lines(session, build)
    return f"packages: {lines[-1][:200]}" if lines else f"packages: job {build.id} resolves them"


def _last_lines(session: Session, build: Job) -> list[str]:
    newest = select(LogChunk.body).where(LogChunk.job_id == build.id).order_by(LogChunk.first_line.desc()).limit(1)
    body = session.scalars(newest).first()
    return [line for line in (body or b"").decode(errors="replace").splitlines() if line.strip()]


def _fail(context: Context, overlay_id: str) -> Preparation:
    """The build has ended without an overlay: once more if a learner was lost, else for good."""
    woken = None
    with context.database.transaction() as session:
        overlay = session.get_one(Overlay, overlay_id, with_for_update=True)
        build = session.get(Job, overlay.job_id)
        last = session.scalars(_last_attempt(overlay.job_id)).first() if build else None
        lost = last is not None and last.outcome in (Outcome.LOST, Outcome.INTERRUPTED)
        if overlay.state == OverlayState.BUILDING and build is not None and lost and overlay.builds < _MOST_BUILDS:
            woken = build_again(Scope(session, overlay.project_id), overlay, build).id
        elif overlay.state == OverlayState.BUILDING:
            overlay.state = OverlayState.FAILED
            overlay.reason = _why(session, build, last)
        reason = overlay.reason
    if woken is not None:
        context.wake.job(woken)
        return replace(_WAITING, progress="packages: the build's learner was lost, so it starts again")
    return replace(_WAITING, failed=f"packages: {reason}")


def _last_attempt(job_id: str) -> Any:
    return select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.n.desc()).limit(1)


def _why(session: Session, build: Job | None, last: Attempt | None) -> str:
    if build is None:
        return "the job that built them has been deleted"
    if build.state == JobState.HALTED:
        return f"job {build.id}, which built them, was halted"
    said = session.scalars(select(Learner.last_lines).where(Learner.attempt_id == last.id)).first() if last else None
    lines = (said or "").splitlines()
    for at in range(len(lines) - 1, -1, -1):
        if lines[at].startswith(_TALK):
            return " ".join([lines[at].removeprefix(_TALK), *lines[at + 1 :]])
    return f"job {build.id}, which built them, failed: {build.reason}"


def _take_over(context: Context, overlay_id: str, project_id: str, build_id: str) -> Preparation | None:
    """Keep the result of a build, under the name of its content."""
    place = results_prefix(project_id, build_id)
    try:
        found = context.objects.head(f"{place}lock.json")
        if found is None or found.size > _LOCK_BYTES:
            raise ValueError("the build has left no lock")
        outcome = _Outcome.model_validate(json.loads(context.objects.get(f"{place}lock.json")))
        if outcome.sha256 is not None:
            archive = context.objects.head(f"{place}overlay.zip")
            if archive is None or archive.size != outcome.size:
                raise ValueError("the build's archive is incomplete")
            target = overlay_key(project_id, outcome.sha256)
            context.objects.copy(f"{place}overlay.zip", context.objects, target, inside=True)
    except StoreError as error:
        return replace(_WAITING, progress=f"packages: waiting for the store: {error}")
    except (ValueError, ValidationError) as error:
        with context.database.transaction() as session:
            overlay = session.get_one(Overlay, overlay_id, with_for_update=True)
            overlay.state, overlay.reason = OverlayState.FAILED, f"job {build_id}: {str(error).splitlines()[0]}"
            return replace(_WAITING, failed=f"packages: {overlay.reason}")
    with context.database.transaction() as session:
        overlay = session.get_one(Overlay, overlay_id, with_for_update=True)
        if overlay.state == OverlayState.BUILDING:
            _make_ready(session, overlay, outcome)
    return None


def _make_ready(session: Session, overlay: Overlay, outcome: _Outcome) -> None:
    overlay.lock = [pin.model_dump() for pin in outcome.packages]
    overlay.lock_sha256 = outcome.lock_sha256
    overlay.sha256, overlay.size = outcome.sha256, outcome.size or None
    if outcome.known:
        same = select(Overlay).where(
            Overlay.project_id == overlay.project_id,
            Overlay.image == overlay.image,
            Overlay.engine == overlay.engine,
            Overlay.lock_sha256 == outcome.lock_sha256,
            Overlay.state == OverlayState.READY,
        )
        other = session.scalars(same.limit(1)).first()
        if other is None:  # dropped since the build began
            overlay.state, overlay.reason = OverlayState.FAILED, "they were removed meanwhile: submit the job again"
            return
        overlay.sha256, overlay.size = other.sha256, other.size
    overlay.state, overlay.used_at = OverlayState.READY, func.now()
    log.info("packages built", overlay=overlay.id, packages=len(outcome.packages), size=overlay.size)
    waiting = select(Job).where(Job.overlay_id == overlay.id, Job.state == JobState.QUEUED.value)
    for job in session.scalars(waiting):
        record_event(session, job, "packages", f"packages: {describe_lock(overlay)}", data={"overlay": overlay.id})
