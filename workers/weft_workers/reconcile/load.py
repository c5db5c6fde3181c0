"""Reads the view of a job from the database."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from weft_core.launch import ElasticSpec
from weft_core.lifecycle.rounds import Round
from weft_core.lifecycle.states import Desired, JobState, LearnerPhase, Outcome
from weft_core.lifecycle.view import BY_REQUEST, AttemptView, JobView, LearnerView, View
from weft_core.packages import BUILD_KIND, indexes
from weft_core.rules import NoStepCondition, conditions
from weft_core.settings import TimingSettings
from weft_core.store import budgets
from weft_core.store.models import (
    Attempt,
    Datastore,
    Event,
    Job,
    Learner,
    LogSource,
    MetricCursor,
    ModelVersion,
    Project,
    RuleFiring,
)
from weft_core.store.rounds import read_rounds


def load_view(session: Session, job_id: str, now: datetime, timings: TimingSettings) -> View:
    """Read a job, its newest attempt and that attempt's learners."""
    job = session.get_one(Job, job_id)
    attempt, progress, progress_at = None, "", None
    learners: tuple[LearnerView, ...] = ()
    rounds: tuple[Round, ...] = ()
    if job.attempt:
        row = session.scalars(select(Attempt).where(Attempt.job_id == job_id, Attempt.n == job.attempt)).one_or_none()
        attempt = attempt_view(row) if row else None
    if attempt and attempt.ended_at is None:
        if job.budget_id is not None and (charged := budgets.reserved_by(session, attempt.id)) is not None:
            attempt = replace(attempt, budget=charged[0], reserved=charged[1])
        whole = select(Learner).where(Learner.attempt_id == attempt.id).order_by(Learner.rank)
        rows = session.scalars(whole.options(defer(Learner.stacks)))  # they are large
        learners = tuple(_learner_view(row) for row in rows)
        if job.manifest.get("elastic"):
            rounds = tuple(read_rounds(session, attempt.id))
        if job.state == JobState.PENDING:
            progress, progress_at = _progress(session, job_id, attempt.n)
    launching = attempt is not None and any(learner.launched_at is None for learner in learners if not learner.left)
    found = _job_view(session, job, launching=launching)
    return View(now, timings, found, attempt, learners, progress=progress, progress_at=progress_at, rounds=rounds)


def _job_view(session: Session, job: Job, launching: bool) -> JobView:
    step_rules = _step_rules(session, job)
    return JobView(
        id=job.id,
        project_id=job.project_id,
        engine=job.engine,
        state=JobState(job.state),
        desired=Desired(job.desired),
        learners=job.learners,
        retries=job.retries,
        failures=job.failures,
        reason=job.reason,
        condition=job.condition,
        halt_reason=job.halt_reason or BY_REQUEST,
        step_rules=step_rules,
        stepped_at=_stepped_at(session, job) if step_rules else None,
        state_since=job.state_since,
        max_runtime=job.manifest.get("max_runtime_seconds"),
        keepalive=job.keepalive_seconds,
        keepalive_until=job.keepalive_until,
        idle_limit=job.idle_seconds,
        active_at=_active_at(session, job) if job.idle_seconds else None,
        name=job.name,
        project=session.get_one(Project, job.project_id).name if launching else "",
        endpoints=_endpoints(session, job) if launching else (),
        manifest=job.manifest,
        elastic=ElasticSpec.model_validate(job.manifest["elastic"]) if job.manifest.get("elastic") else None,
        traceparent=job.traceparent,
    )


def _step_rules(session: Session, job: Job) -> tuple[tuple[int, NoStepCondition], ...]:
    """The rules about steps that have not fired."""
    rules = conditions(job.manifest, NoStepCondition)
    if not rules or job.state != JobState.PROCESSING:
        return ()
    fired = set(session.scalars(select(RuleFiring.rule).where(RuleFiring.job_id == job.id)))
    return tuple(rule for rule in rules if rule[0] not in fired)


def _stepped_at(session: Session, job: Job) -> datetime | None:
    return session.scalar(select(MetricCursor.stepped_at).where(MetricCursor.job_id == job.id))


def _active_at(session: Session, job: Job) -> datetime | None:
    """The newest sign of work in its newest attempt: its learners' load, or a line."""
    loads = (
        select(func.max(func.coalesce(Learner.active_at, Learner.started_at)))
        .join(Attempt, Attempt.id == Learner.attempt_id)
        .where(Attempt.job_id == job.id, Attempt.n == job.attempt)
    )
    lines = select(func.max(LogSource.written_at)).where(LogSource.job_id == job.id, LogSource.attempt == job.attempt)
    found = [moment for moment in (session.scalar(loads), session.scalar(lines)) if moment is not None]
    return max(found, default=None)


def _endpoints(session: Session, job: Job) -> tuple[str, ...]:
    """The URLs of the stores and the repository that the manifest names, of the model version that it means, and of the
    indexes of packages. If one is not kept any more, the API reports that."""
    stores = job.manifest.get("data_stores", [])
    kept = {store["datastore"] for store in stores if store.get("datastore")}
    found = {store["connection"]["auth_url"] for store in stores if store.get("connection")}
    if repository := job.manifest.get("repo"):
        found.add(repository["url"])
    if job.kind == BUILD_KIND:
        found |= set(indexes(job.manifest))
    model = session.get(ModelVersion, job.pretrained_id) if job.pretrained_id else None
    if model is not None:
        kept |= {model.datastore} - {None}
        found |= {model.endpoint} - {None}
    rows = select(Datastore.endpoint).where(Datastore.project_id == job.project_id, Datastore.name.in_(kept))
    return tuple(sorted(found | (set(session.scalars(rows)) if kept else set())))


def attempt_view(row: Attempt) -> AttemptView:
    return AttemptView(
        id=row.id,
        n=row.n,
        run_name=row.run_name,
        memory=row.resources["memory"],
        resources=row.resources,
        token=row.token_ciphertext,
        launched_at=row.launched_at,
        held_at=row.held_at,
        stop_requested_at=row.stop_requested_at,
        grace=row.grace_seconds,
        preempted_by=row.preempted_by,
        outcome=Outcome(row.outcome) if row.outcome else None,
        reason=row.reason,
        error_code=row.error_code,
        exit_code=row.exit_code,
        ended_at=row.ended_at,
        grow_at=row.grow_at,
        no_output_at=row.no_output_at,
        stalled_at=row.stalled_at,
        stalled_since=row.stalled_since,
        look_at=row.look_at,
        alive_at=row.alive_at,
        verdict=row.verdict,
    )


def _learner_view(row: Learner) -> LearnerView:
    return LearnerView(
        rank=row.rank,
        launched_at=row.launched_at,
        arrived=row.arrived,
        broken=row.broken,
        broken_at=row.broken_at,
        left=row.left_at is not None,
        left_reason=row.left_reason or "",
        phase=LearnerPhase(row.phase),
        started_at=row.started_at,
        heartbeat_at=row.heartbeat_at,
        heard_since=row.heard_since,
        idle_since=row.idle_since,
        still_since=row.still_since,
        pause=row.pause_seconds or 0.0,
        wrote=row.wrote,
        active_at=row.active_at,
        stacks_at=row.stacks_at,
        absences=row.absences,
        node=row.node,
        exit_code=row.exit_code,
        exit_reason=row.exit_reason,
        last_lines=row.last_lines,
        exited_at=row.exited_at,
        kept_until=row.kept_until,
    )


def _progress(session: Session, job_id: str, n: int) -> tuple[str, datetime | None]:
    newest = (
        select(Event.message, Event.created_at)
        .where(Event.job_id == job_id, Event.kind == "image", Event.attempt == n)
        .order_by(Event.id.desc())
        .limit(1)
    )
    row = session.execute(newest).one_or_none()
    return (row[0], row[1]) if row else ("", None)
