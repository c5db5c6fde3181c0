"""Schedules: stored manifests that start jobs at times of cron, and at promotions of a model.

The caller's transaction holds the lock of the schedule's row, so a worker that dies leaves a start with its
job, or neither, and two workers never make the job of the same start.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from weft_core.cron import last_time, next_time
from weft_core.ids import new_id
from weft_core.manifest import After, Manifest, ModelReference
from weft_core.secrets import SecretBox, SecretsUnreadable
from weft_core.settings import Settings
from weft_core.store import registry
from weft_core.store.credentials import unseal_all
from weft_core.store.jobs import record_event
from weft_core.store.members import submitting_role
from weft_core.store.models import Job, ModelVersion, Project, ScheduleRow, ScheduleState, Start, StartState, Trigger
from weft_core.store.packages import unpack_packages
from weft_core.store.registry import UnknownModel
from weft_core.store.scope import Scope
from weft_core.store.submitting import insert_job, job_row

KEPT = 1000
"""So many starts of a schedule are kept; the rows of older ones are deleted. Their jobs stay."""
_WAITING = 2
"""As many jobs of a schedule that have not ended: one that runs, and one that waits for it."""


class NotStarted(Exception):
    """A job can't be made; the message says why."""


def manifest_of(row: ScheduleRow) -> Manifest:
    return Manifest.model_validate(row.manifest)


def next_due(session: Session, row: ScheduleRow) -> datetime | None:
    """The first time of the schedule from now on; None: it has no times."""
    times = manifest_of(row).schedule
    return next_time(times.cron, times.timezone, _now(session)) if times is not None else None


# --- steer ---


def pause(session: Session, row: ScheduleRow, reason: str) -> None:
    """Let nothing start jobs any more. Promotions whose jobs have not been made are skipped."""
    row.state, row.reason = ScheduleState.PAUSED.value, reason
    row.due_at = row.next_step_at = None
    waiting = update(Start).where(Start.schedule_id == row.id, Start.state == StartState.DUE)
    session.execute(waiting.values(state=StartState.SKIPPED.value, reason=f"the schedule was paused: {reason}"))


def activate(session: Session, row: ScheduleRow) -> None:
    """Let it start jobs, from now on: the times and promotions of the pause are lost."""
    row.state, row.reason = ScheduleState.ACTIVE.value, ""
    row.due_at = row.next_step_at = next_due(session, row)


# --- start ---


def advance(session: Session, settings: Settings, box: SecretBox, row: ScheduleRow) -> list[str]:
    """Make the jobs of the promotions since the last call, and that of the last time that has come.

    Returns:
        The ids of the jobs to wake after the commit.
    """
    scope = Scope(session, row.project_id)
    if row.state != ScheduleState.ACTIVE:
        row.next_step_at = None
        return []
    if submitting_role(session, row.project_id, row.user_id) is None:
        pause(session, row, "its owner may not submit jobs to this project any more")
        return []
    woken: list[str] = []
    due = scope.select(Start, Start.schedule_id == row.id, Start.state == StartState.DUE)
    for start in scope.all(due.order_by(Start.id)):
        woken += _fulfil(scope, settings, box, row, start)
    now = _now(session)
    if row.due_at is not None and row.due_at <= now:
        woken += _at_time(scope, settings, box, row, row.due_at, now)
        row.due_at = next_due(session, row)
    row.next_step_at = row.due_at
    _forget(session, row)
    session.flush()
    return woken


def _at_time(
    scope: Scope, settings: Settings, box: SecretBox, row: ScheduleRow, due: datetime, now: datetime
) -> list[str]:
    times = manifest_of(row).schedule
    assert times is not None
    last = last_time(times.cron, times.timezone, due, now)
    missed = "" if last == due else f"the times from {_written(due)} on were missed"
    start = Start(schedule_id=row.id, trigger=Trigger.TIME.value, due_at=last, state=StartState.DUE.value)
    start.reason = missed
    scope.add(start)
    before = _unfinished(scope, row)
    if before and (times.overlap == "skip" or len(before) >= _WAITING):
        waits = "" if times.overlap == "skip" else f", and {before[-1]} waits already"
        start.state, start.reason = StartState.SKIPPED.value, f"{before[0]} had not ended{waits}"
        return []
    return _fulfil(scope, settings, box, row, start)


def request(
    scope: Scope, settings: Settings, box: SecretBox, row: ScheduleRow, user_id: str
) -> tuple[Start, list[str]]:
    """Make a job now, whatever the schedule's state is and whether others of its jobs run.

    Returns:
        The start, and the ids of the jobs to wake after the commit.

    Raises:
        NotStarted: its owner has no right to, or its model has no version.
    """
    if submitting_role(scope.session, row.project_id, row.user_id) is None:
        raise NotStarted("its owner may not submit jobs to this project any more")
    start = Start(schedule_id=row.id, trigger=Trigger.REQUEST.value, user_id=user_id)
    scope.add(start)
    woken = _begin(scope, settings, box, row, start, None)
    return start, woken


def _fulfil(scope: Scope, settings: Settings, box: SecretBox, row: ScheduleRow, start: Start) -> list[str]:
    """Make the job of a start, behind the last one of the schedule that has not ended; or note why not."""
    before = _unfinished(scope, row)
    try:
        with scope.session.begin_nested():
            return _begin(scope, settings, box, row, start, before[-1] if before else None)
    except (NotStarted, SecretsUnreadable) as error:
        start.state, start.reason, start.job_id = StartState.REFUSED.value, str(error), None
        return []


def _begin(
    scope: Scope, settings: Settings, box: SecretBox, row: ScheduleRow, start: Start, before: str | None
) -> list[str]:
    session, manifest = scope.session, manifest_of(row)
    if manifest.engine not in settings.engines:
        raise NotStarted(f"the engine {manifest.engine!r} is not in the settings any more")
    start.state = StartState.STARTED.value
    session.flush()
    session.refresh(start, ["due_at"])
    if manifest.on is not None and start.version is None:
        start.version = _find(scope, manifest.on).number
    pinned = _pin(scope, manifest, start)
    job = job_row(
        new_id("job"),
        row.user_id,
        _of_start(scope, row, manifest, start, before),
        row.code_sha256,
        labels={"schedule": row.id},
        pretrained_id=pinned,
        budget_id=row.budget_id,
    )
    made = Manifest.model_validate(job.manifest)
    overlay = insert_job(scope, box, job, made, unseal_all(box, row.credentials), unpack_packages(row.packages, made))
    record_event(session, job, "schedule", _words(row, manifest, start), data={"schedule": row.id})
    start.job_id = job.id
    session.flush()
    return [job.id] if overlay is None else [overlay.job_id, job.id]


def _of_start(scope: Scope, row: ScheduleRow, manifest: Manifest, start: Start, before: str | None) -> Manifest:
    """The manifest of the job of a start."""
    trigger = {"WEFT_SCHEDULE": row.id, "WEFT_TRIGGER": start.trigger, "WEFT_DUE_AT": _written(start.due_at)}
    if manifest.on is not None:
        trigger |= {
            "WEFT_PROMOTED_MODEL": manifest.on.name,
            "WEFT_PROMOTED_STAGE": manifest.on.version,
            "WEFT_PROMOTED_VERSION": str(start.version),
        }
    return manifest.model_copy(
        update={
            "schedule": None,
            "on": None,
            "after": [After(job=before, on="ended")] if before is not None else [],
            "priority": _priority(scope, row, manifest.priority),
            "trigger": trigger,
        }
    )


def _priority(scope: Scope, row: ScheduleRow, asked: int) -> int:
    """``asked``, or the most that the owner's role may have now."""
    role = submitting_role(scope.session, row.project_id, row.user_id)
    caps = scope.session.execute(select(Project.caps).where(Project.id == row.project_id)).scalar_one()
    cap: int | None = caps.get(role or "", {}).get("priority")
    return asked if cap is None else min(asked, cap)


def _pin(scope: Scope, manifest: Manifest, start: Start) -> str | None:
    """The version that the job starts from. A stage means the version that it is at now, and the stage of ``on`` the
    promoted one, even if another has been promoted since."""
    for store in manifest.data_stores:
        if store.model is not None:
            promoted = ModelReference(name=store.model.name, version=str(start.version))
            return _find(scope, promoted if store.model == manifest.on else store.model).id
    return None


def _find(scope: Scope, reference: ModelReference) -> ModelVersion:
    try:
        return registry.find_version(scope, registry.find_model(scope, reference.name), reference.version)
    except UnknownModel as error:
        raise NotStarted(str(error)) from error


def _unfinished(scope: Scope, row: ScheduleRow) -> list[str]:
    """The jobs of the schedule that have not ended, in the order of their starts."""
    mine = (Start.schedule_id == row.id, Job.project_id == row.project_id, Job.ended_at.is_(None))
    query = select(Job.id).join(Start, Start.job_id == Job.id).where(*mine).order_by(Start.id)
    return list(scope.session.scalars(query))


def _words(row: ScheduleRow, manifest: Manifest, start: Start) -> str:
    by = {
        Trigger.TIME.value: f"at {_written(start.due_at)}",
        Trigger.PROMOTION.value: f"at the promotion of version {start.version}",
        Trigger.REQUEST.value: "on request",
    }[start.trigger]
    named = f" of {manifest.on.name}@{manifest.on.version}" if manifest.on and start.trigger == "promotion" else ""
    return f"started by the schedule {row.name} ({row.id}) {by}{named}"


def _forget(session: Session, row: ScheduleRow) -> None:
    last = select(Start.id).where(Start.schedule_id == row.id).order_by(Start.id.desc()).offset(KEPT).limit(1)
    old = delete(Start).where(Start.schedule_id == row.id, Start.id <= last.scalar_subquery())
    session.execute(old.where(Start.state != StartState.DUE))


def _now(session: Session) -> datetime:
    return session.execute(select(func.now())).scalar_one()


def _written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
