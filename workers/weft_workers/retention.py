"""Removes what projects no longer keep of jobs that have ended: logs, metrics, results, events, and unused code.

One worker at a time looks after a project. It goes through the jobs in the order in which they ended, each in a
transaction of its own under the lock of the job's row, so that a resume, a deletion or a registration as a model either
comes first or finds the work done. Objects go before their rows are changed: if the process dies in between, the next
pass does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import delete, func, literal, or_, select, tuple_, update
from sqlalchemy.orm import Session

from weft_core.lifecycle.states import TERMINAL, Desired
from weft_core.log_archive import logs_prefix
from weft_core.objects import Objects, checkpoints_prefix, code_key, profiles_prefix, results_prefix
from weft_core.store.backups import BackupRuns, may_delete
from weft_core.store.jobs import record_event
from weft_core.store.models import (
    Attempt,
    CodeBundle,
    Delivery,
    Event,
    Job,
    LogChunk,
    LogCursor,
    LogFrame,
    MetricBatch,
    MetricCursor,
    MetricRecords,
    MetricSeries,
    ModelVersion,
    Overlay,
    Project,
    ScheduleRow,
    SweepRow,
)
from weft_core.store.registry import keeps_results
from weft_core.store.retention import Keep, held, not_removed, policy, results_elsewhere
from weft_core.words import count, size
from weft_workers.context import Context

log = structlog.get_logger(__name__)

EVENT = "removed"
"""The kind of events that report a removal; they stay."""
_EVERY = timedelta(minutes=10)
_YOUNG = timedelta(days=1)
"""After its end, a job's late log lines may come for as long; and an upload may be on its way into the database."""
_ANEW = timedelta(days=1)
"""How often a pass begins with the oldest jobs again, because data that a model or a job needed may have become
free."""
_BATCH = 50


@dataclass(frozen=True)
class _Removed:
    """The removed data of a job."""

    words: str
    bytes: int
    lines: int = 0


@dataclass(frozen=True)
class _Due:
    """A job whose turn it is."""

    id: str
    ended_at: datetime


class Retention:
    """Removes data that is due, for all projects."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._removers: dict[str, Callable[[Session, Job], _Removed | None]] = {
            "logs": self._remove_log,
            "metrics": self._remove_metrics,
            "results": self._remove_results,
            "events": self._remove_events,
        }

    def remove_due(self) -> None:
        """Look after each project whose turn it is. While a backup is being made, nothing is removed.

        Raises:
            StoreError: S3 is away; what is left is due again later.
        """
        for project_id, keeps in self._due_projects():
            if not self._claim(project_id):
                continue
            try:
                for kind, keep in keeps.items():
                    if kind == "code":
                        self._remove_code(project_id, keep)
                    else:
                        self._remove_from_jobs(project_id, kind, keep)
            except BackupRuns:
                return

    def _due_projects(self) -> list[tuple[str, dict[str, Keep]]]:
        """Projects with a limit for this kind of data, and their limits."""
        query = select(Project.id, Project.retention).where(Project.retention_due <= func.now())
        with self._context.database.transaction() as session:
            found = session.execute(query.order_by(Project.retention_due)).all()
        projects = []
        for project_id, own in found:
            keeps = policy(self._context.settings.retention, own)
            limited = {kind: keep for kind, keep in keeps.items() if keep.limits}
            if limited:
                projects.append((project_id, limited))
        return projects

    def _claim(self, project_id: str) -> bool:
        """Whether this project is ours for a while."""
        due = (Project.id == project_id) & (Project.retention_due <= func.now())
        claim = update(Project).where(due).values(retention_due=func.now() + _EVERY).returning(Project.id)
        with self._context.database.transaction() as session:
            return session.scalar(claim) is not None

    # --- what belongs to jobs ---

    def _remove_from_jobs(self, project_id: str, kind: str, keep: Keep) -> None:
        now, position, began = self._position(project_id, kind)
        excess = 0
        if keep.bytes is not None:
            with self._context.database.transaction() as session:
                excess = held(session, project_id, kind) - keep.bytes
        until = None if keep.days is None else now - timedelta(days=keep.days)
        while batch := self._ended(project_id, kind, position):
            done: list[_Removed] = []
            beyond = False
            for due in batch:
                old = until is not None and due.ended_at < until
                beyond = not old and excess <= 0
                if beyond:  # and so are all that ended later
                    break
                why = f"kept for {count(keep.days or 0, 'day')}" if old else f"{size(keep.bytes or 0)} are kept"
                if removed := self._remove(kind, due, why):
                    done.append(removed)
                    excess -= removed.bytes
                position = (due.ended_at, due.id)
            self._note(project_id, kind, done, position, began)
            if beyond or len(batch) < _BATCH:
                return

    def _position(self, project_id: str, kind: str) -> tuple[datetime, tuple[datetime, str], datetime]:
        """The time, the job behind which to go on, and since when this pass over all jobs is under way."""
        with self._context.database.transaction() as session:
            now: datetime = session.scalar(select(func.now()))  # type: ignore[assignment]
            kept: Mapping[str, Any] = session.get_one(Project, project_id).removed.get(kind, {})
        if "began" in kept and (began := datetime.fromisoformat(kept["began"])) > now - _ANEW:
            at, job_id = kept["until"]
            return now, (datetime.fromisoformat(at), job_id), began
        return now, (datetime.fromtimestamp(0, UTC), ""), now

    def _ended(self, project_id: str, kind: str, position: tuple[datetime, str]) -> list[_Due]:
        """The next jobs that have something of this kind, in the order of their ends."""
        after = tuple_(Job.ended_at, Job.id) > tuple_(literal(position[0]), literal(position[1]))
        query = (
            select(Job.id, Job.ended_at)
            .where(Job.project_id == project_id, Job.ended_at < func.now() - _YOUNG, after, not_removed(kind))
            .order_by(Job.ended_at, Job.id)
            .limit(_BATCH)
        )
        with self._context.database.transaction() as session:
            return [_Due(job_id, at) for job_id, at in session.execute(query) if at is not None]

    def _remove(self, kind: str, due: _Due, why: str) -> _Removed | None:
        """Remove it, unless something needs it."""
        over = Job.state.in_([state.value for state in TERMINAL]) & (Job.desired != Desired.DELETED.value)
        mine = select(Job).where(Job.id == due.id, Job.ended_at == due.ended_at, over)
        with self._context.database.transaction() as session:
            job = session.scalars(mine.with_for_update(skip_locked=True)).one_or_none()
            if job is None:
                return None
            may_delete(session)
            removed = self._removers[kind](session, job)
            if removed is None:
                return None
            told = {"at": datetime.now(UTC).isoformat(), "bytes": removed.bytes, "lines": removed.lines}
            earlier = (job.removed or {}).get(kind, {}).get("lines", 0)
            job.removed = {**(job.removed or {}), kind: told | {"lines": removed.lines + earlier}}
            record_event(session, job, EVENT, f"{removed.words} removed: {why}", data={"what": kind, **told})
            return removed

    def _remove_log(self, session: Session, job: Job) -> _Removed | None:
        mine = select(LogCursor).where(LogCursor.job_id == job.id)
        cursor = session.scalars(mine.with_for_update()).one_or_none()
        moving = select(Attempt.id).where(Attempt.job_id == job.id, Attempt.logs_due.is_not(None))
        if cursor is None or session.scalars(moving.limit(1)).one_or_none():
            return None
        lines = _sum(session, LogFrame.lines, LogFrame.job_id == job.id)
        lines += _sum(session, LogChunk.lines, LogChunk.job_id == job.id)
        if not lines:
            return None
        _empty(self._context.objects, logs_prefix(job.project_id, job.id))
        for model in (LogFrame, LogChunk):
            session.execute(delete(model).where(model.job_id == job.id))
        removed = _Removed(f"the log ({count(lines, 'line')}, {size(cursor.bytes)}) was", cursor.bytes, lines)
        # A resumed job's next lines go on with the numbers.
        cursor.archived, cursor.bytes = cursor.next_line, 0
        return removed

    def _remove_metrics(self, session: Session, job: Job) -> _Removed | None:
        mine = select(MetricCursor).where(MetricCursor.job_id == job.id)
        cursor = session.scalars(mine.with_for_update()).one_or_none()
        if cursor is None:
            return None
        gone = 0
        for model in (MetricBatch, MetricRecords, MetricSeries):
            there = session.scalar(select(literal(1)).where(model.job_id == job.id).limit(1))
            if there:
                gone += 1
                session.execute(delete(model).where(model.job_id == job.id))
        if not gone:
            return None
        points = cursor.points + cursor.system_points
        removed = _Removed(f"the metrics ({count(points, 'value')}) were", cursor.bytes)
        cursor.points = cursor.system_points = cursor.bytes = cursor.series = cursor.waiting = 0
        return removed

    def _remove_results(self, session: Session, job: Job) -> _Removed | None:
        elsewhere = session.scalar(select(results_elsewhere()).where(Job.id == job.id))
        if elsewhere or keeps_results(session, job.id):
            return None
        live = Job.state.not_in([state.value for state in TERMINAL])
        begins = select(Job.id).where(Job.project_id == job.project_id, live, Job.checkpoint_of["job"].astext == job.id)
        if session.scalars(begins.limit(1)).one_or_none():
            return None
        files, bytes_ = 0, 0
        for prefix_of in (results_prefix, checkpoints_prefix, profiles_prefix):
            prefix = prefix_of(job.project_id, job.id)
            some, more = _empty(self._context.objects, prefix)
            files, bytes_ = files + some, bytes_ + more
        if not files:
            return None
        return _Removed(f"results and checkpoints ({count(files, 'file')}, {size(bytes_)}) were", bytes_)

    def _remove_events(self, session: Session, job: Job) -> _Removed | None:
        waiting = select(Delivery.id).where(Delivery.job_id == job.id, Delivery.next_try_at.is_not(None))
        if session.scalars(waiting.limit(1)).one_or_none():
            return None
        old = delete(Event).where(Event.job_id == job.id, Event.kind != EVENT)
        gone = len(session.execute(old.returning(Event.id)).all())
        return _Removed(f"{count(gone, 'event')} were", 0) if gone else None

    def _note(
        self, project_id: str, kind: str, done: list[_Removed], position: tuple[datetime, str], began: datetime
    ) -> None:
        """Note on the project what was removed, and how far the pass has come."""
        with self._context.database.transaction() as session:
            project = session.get_one(Project, project_id, with_for_update={"key_share": True})
            _add(project, kind, len(done), sum(removed.bytes for removed in done))
            place = {"until": [position[0].isoformat(), position[1]], "began": began.isoformat()}
            project.removed = {**project.removed, kind: {**project.removed.get(kind, {}), **place}}
        if done:
            log.info("removed", what=kind, project=project_id, jobs=len(done), bytes=sum(each.bytes for each in done))

    # --- code ---

    def _remove_code(self, project_id: str, keep: Keep) -> None:
        """Code that no job, sweep, schedule, build of packages or lineage of a model names. Its row's lock, and the
        foreign keys of the first three, keep a submit from naming it meanwhile."""
        old = CodeBundle.created_at < func.now() - timedelta(days=keep.days or 0)
        bundle = (CodeBundle.project_id == project_id, old)
        used = or_(
            *(
                select(model.id)
                .where(model.project_id == project_id, named == CodeBundle.sha256)
                .correlate(CodeBundle)
                .exists()
                for model, named in (
                    (Job, Job.code_sha256),
                    (SweepRow, SweepRow.code_sha256),
                    (ScheduleRow, ScheduleRow.code_sha256),
                    (Overlay, Overlay.code_sha256),
                    (ModelVersion, ModelVersion.lineage["code_sha256"].astext),
                )
            )
        )
        unused = select(CodeBundle).where(*bundle, ~used).order_by(CodeBundle.sha256).limit(_BATCH)
        last = ""
        while True:
            with self._context.database.transaction() as session:
                may_delete(session)
                found = session.scalars(unused.where(CodeBundle.sha256 > last).with_for_update(skip_locked=True)).all()
                if not found:
                    return
                last = found[-1].sha256
                keys = []
                for row in found:
                    key = code_key(project_id, row.sha256)
                    stored = self._context.objects.head(key)
                    # An upload that begins now counts on an object that is there.
                    if stored is not None and stored.modified > datetime.now(UTC) - _YOUNG:
                        continue
                    keys.append(key)
                    session.delete(row)
                session.flush()
                self._context.objects.delete(keys)
                project = session.get_one(Project, project_id, with_for_update={"key_share": True})
                gone = [row for row in found if code_key(project_id, row.sha256) in keys]
                _add(project, "code", len(gone), sum(row.size for row in gone))
            if keys:
                log.info("removed", what="code", project=project_id, bundles=len(keys))


def _add(project: Project, kind: str, number: int, bytes_: int) -> None:
    """To what was removed of the project so far."""
    if not number:
        return
    so_far = project.removed.get(kind, {})
    total = {
        "number": so_far.get("number", 0) + number,
        "bytes": so_far.get("bytes", 0) + bytes_,
        "at": datetime.now(UTC).isoformat(),
    }
    project.removed = {**project.removed, kind: so_far | total}


def _sum(session: Session, column: Any, condition: Any) -> int:
    return int(session.scalar(select(func.sum(column)).where(condition)) or 0)


def _empty(objects: Objects, prefix: str) -> tuple[int, int]:
    """Delete all objects below a prefix; returns their number and their bytes."""
    files = bytes_ = 0
    some: list[str] = []
    for found in objects.objects(prefix):
        files, bytes_ = files + 1, bytes_ + found.size
        some.append(found.key)
        if len(some) == 1000:
            objects.delete(some)
            some = []
    objects.delete(some)
    return files, bytes_
