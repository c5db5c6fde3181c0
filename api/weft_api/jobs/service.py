"""Reading jobs, and turning their rows into views."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, or_, select, tuple_

from weft_api.access.auth import Principal
from weft_api.jobs.ordering import Order
from weft_api.jobs.schemas import (
    AfterView,
    AttemptView,
    FrameworkView,
    JobDetail,
    JobPage,
    JobView,
    LearnerView,
    PackagesView,
    PinView,
    RoundView,
)
from weft_api.jobs.search import JobFilter, find_page
from weft_api.metrics.listing import best_and_last
from weft_api.mlflow.params import logged_by, params_of
from weft_api.models.names import registered_as, started_from
from weft_core.launch import Resources
from weft_core.lifecycle.states import JobState
from weft_core.store.models import Attempt, Job, Learner, Overlay, Predecessor, Round, User
from weft_core.store.row_security import across_projects
from weft_core.store.scope import Scope

_MOST_AWAITING = 20
"""Jobs that a job's page names as waiting for it."""


def list_jobs(scope: Scope, who: Principal, wanted: JobFilter, order: Order, limit: int, cursor: str | None) -> JobPage:
    """A page of the project's jobs."""
    places = find_page(scope, wanted, order, limit + 1, cursor)
    ids = [place.id for place in places[:limit]]
    found = {job.id: job for job in scope.all(scope.select(Job, Job.id.in_(ids)))} if ids else {}
    page = [found[job_id] for job_id in ids if job_id in found]
    users = _user_names(scope, {job.user_id for job in page})
    metrics = best_and_last(scope, ids)
    params = params_of(scope, ids, [name for name, _ in wanted.params])
    return JobPage(
        jobs=[
            JobView(**_fields(job, who, users[job.user_id]), metrics=metrics[job.id], params=params[job.id])
            for job in page
        ],
        next_cursor=order.cursor(places[limit - 1]) if len(places) > limit else None,
    )


def show_job(scope: Scope, who: Principal, job: Job) -> JobView:
    """A job without its attempts."""
    return JobView(**_fields(job, who, _user_name(scope, who, job)), metrics=best_and_last(scope, [job.id])[job.id])


def show_new_job(who: Principal, job: Job) -> JobView:
    """A job of the caller's that was inserted just now, so that nothing belongs to it yet."""
    return JobView(**_fields(job, who, who.user), metrics={})


def detail_job(scope: Scope, who: Principal, job: Job) -> JobDetail:
    """A job with everything that belongs to it."""
    fields = _fields(job, who, _user_name(scope, who, job))
    if job.state == JobState.QUEUED and not job.predecessors:
        fields["queue_position"] = _queue_position(scope, job)
    logged = logged_by(scope, job.id)
    return JobDetail(
        **fields,
        metrics=best_and_last(scope, [job.id])[job.id],
        params=logged.params,
        tags=logged.tags,
        attempts=_attempts(scope, job),
        manifest=job.manifest,
        notes=job.notes,
        pretrained_model=started_from(scope, job),
        models=registered_as(scope, job),
        packages=_packages(scope, job),
        after=_after(scope, job),
        awaited_by=_awaited_by(scope, job),
    )


def _after(scope: Scope, job: Job) -> list[AfterView]:
    """The jobs before this one, as its manifest names them."""
    named = [entry["job"] for entry in job.manifest.get("after", ())]
    if not named:
        return []
    rows = {row.predecessor_id: row for row in scope.all(scope.select(Predecessor, Predecessor.job_id == job.id))}
    query = scope.select(Job, Job.id.in_(named)).with_only_columns(Job.id, Job.state)
    states = dict(scope.session.execute(query).all())
    return [
        AfterView(job=row.predecessor_id, on=row.ending, state=states.get(row.predecessor_id), ended_at=row.ended_at)
        for row in (rows[name] for name in named if name in rows)
    ]


def _awaited_by(scope: Scope, job: Job) -> list[str]:
    """The jobs that wait for this one, the oldest first."""
    waits = (Predecessor.predecessor_id == job.id, Predecessor.ended_at.is_(None))
    query = scope.select(Job, Job.state == JobState.QUEUED.value).join(Predecessor, Predecessor.job_id == Job.id)
    found = query.where(*waits).with_only_columns(Job.id).order_by(Job.created_at, Job.id).limit(_MOST_AWAITING)
    return list(scope.session.scalars(found))


def _packages(scope: Scope, job: Job) -> PackagesView | None:
    overlay = scope.find(Overlay, Overlay.id == job.overlay_id) if job.overlay_id else None
    if overlay is None:
        return None
    return PackagesView(
        state=overlay.state,
        reason=overlay.reason,
        build=overlay.job_id,
        lock=[PinView(**pin) for pin in overlay.lock] if overlay.lock is not None else None,
        sha256=overlay.sha256,
        size=overlay.size,
    )


def _user_name(scope: Scope, who: Principal, job: Job) -> str:
    return who.user if job.user_id == who.user_id else _user_names(scope, {job.user_id})[job.user_id]


def _user_names(scope: Scope, ids: set[str]) -> dict[str, str]:
    if not ids:
        return {}
    return dict(scope.session.execute(select(User.id, User.name).where(User.id.in_(ids))).all())


def _queue_position(scope: Scope, job: Job) -> int:
    """Place in the engine's queue, as the last plan had it. Other projects' jobs are counted, as they are in the way,
    but not shown. Until there is a plan with the job, it is the place by priority and age."""
    if job.place is not None:
        return job.place
    before = or_(
        Job.priority > job.priority,
        (Job.priority == job.priority) & (tuple_(Job.created_at, Job.id) < (job.created_at, job.id)),
    )
    queued = (Job.state == JobState.QUEUED.value) & (Job.predecessors == 0)
    query = select(func.count()).where(Job.engine == job.engine, queued, before)
    with across_projects(scope.session):
        return 1 + (scope.session.scalar(query) or 0)


def _attempts(scope: Scope, job: Job) -> list[AttemptView]:
    attempts = scope.all(scope.select(Attempt, Attempt.job_id == job.id).order_by(Attempt.n))
    learners: dict[str, list[LearnerView]] = defaultdict(list)
    wanted = scope.select(Learner, Learner.attempt_id.in_([attempt.id for attempt in attempts]))
    for learner in scope.all(wanted.order_by(Learner.rank)):
        learners[learner.attempt_id].append(
            LearnerView(
                learner=learner.rank + 1,
                phase=learner.phase,
                node=learner.node,
                address=learner.address,
                ports=learner.ports or [],
                exit_code=learner.exit_code,
                exit_reason=learner.exit_reason,
                lost=None if learner.left_at is None else learner.left_reason,
                leftovers=learner.leftovers,
            )
        )
    rounds = _rounds(scope, attempts) if job.manifest.get("elastic") else {}
    return [
        AttemptView(
            n=attempt.n,
            outcome=attempt.outcome,
            reason=attempt.reason,
            exit_code=attempt.exit_code,
            created_at=attempt.created_at,
            ended_at=attempt.ended_at,
            checkpoint=attempt.started_from,
            learners=learners[attempt.id],
            round=rounds.get(attempt.id),
        )
        for attempt in attempts
    ]


def _rounds(scope: Scope, attempts: Sequence[Attempt]) -> dict[str, RoundView]:
    """The newest round of each attempt."""
    found = scope.select(Round, Round.attempt_id.in_([attempt.id for attempt in attempts])).order_by(Round.n)
    newest = {row.attempt_id: row for row in scope.all(found)}
    slots = {attempt.id: max(1, int(attempt.resources.get("gpus", 0))) for attempt in attempts}
    return {
        attempt_id: RoundView(
            n=row.n,
            learners=[rank + 1 for rank in row.members],
            processes=len(row.members) * slots[attempt_id],
            reason=row.reason,
            opened_at=row.opened_at,
            closed_at=row.closed_at,
        )
        for attempt_id, row in newest.items()
    }


def _fields(job: Job, who: Principal, user: str) -> dict[str, Any]:
    manifest = job.manifest
    framework = manifest["framework"]
    return {
        "id": job.id,
        "name": job.name,
        "description": manifest.get("description", ""),
        "labels": job.labels,
        "state": job.state,
        "desired": job.desired,
        "reason": job.reason,
        "error_code": job.error_code,
        "condition": job.condition,
        "engine": job.engine,
        "priority": job.priority,
        "framework": FrameworkView(**{key: framework[key] for key in FrameworkView.model_fields}),
        "learners": job.learners,
        "resources": Resources(**manifest["resources"]),
        "attempt": job.attempt,
        "retries": job.retries,
        "failures": job.failures,
        "code_sha256": job.code_sha256,
        "removed": {kind: told["at"] for kind, told in (job.removed or {}).items()},
        "pinned": job.pinned,
        "rerun_of": job.rerun_of,
        "checkpoint_of": job.checkpoint_of,
        "project": who.project,
        "user": user,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "state_since": job.state_since,
    }
