"""What a step knows about a job: rows as they stood at the claim, and what the engine said. Plain values, so that
decisions are functions of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from weft_core.elastic import Round
from weft_core.engine import Observation
from weft_core.launch import ElasticSpec
from weft_core.lifecycle import Desired, JobState, LearnerPhase, Outcome
from weft_core.settings import TimingSettings
from weft_core.store.models import Attempt, Datastore, Event, Job, Learner, LogSource, ModelVersion, Project
from weft_core.store.rounds import read_rounds


@dataclass(frozen=True)
class JobView:
    id: str
    project_id: str
    engine: str
    state: JobState
    desired: Desired
    learners: int
    retries: int
    failures: int = 0
    reason: str = ""
    condition: str | None = None
    state_since: datetime | None = None
    max_runtime: float | None = None  # seconds
    keepalive: float | None = None  # seconds that its client may be silent
    keepalive_until: datetime | None = None
    idle_limit: float | None = None  # seconds
    active_at: datetime | None = None
    """When a learner last printed or worked; read only where there is a limit to its idleness."""
    name: str = ""
    project: str = ""  # its name
    endpoints: tuple[str, ...] = ()
    """URLs of the S3 stores that its learners need; read only when it is to be launched."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    elastic: ElasticSpec | None = None
    traceparent: str | None = None


@dataclass(frozen=True)
class AttemptView:
    """The newest attempt, open or ended."""

    id: str
    n: int
    run_name: str
    memory: int  # bytes a learner
    resources: Mapping[str, Any] = field(default_factory=dict)
    token: bytes = field(default=b"", repr=False)  # encrypted
    launched_at: datetime | None = None
    held_at: datetime | None = None
    stop_requested_at: datetime | None = None
    grace: float | None = None
    outcome: Outcome | None = None
    reason: str = ""
    error_code: str | None = None
    exit_code: int | None = None
    ended_at: datetime | None = None
    grow_at: datetime | None = None
    no_output_at: datetime | None = None
    stalled_at: datetime | None = None
    stalled_since: datetime | None = None


@dataclass(frozen=True)
class LearnerView:
    rank: int
    phase: LearnerPhase = LearnerPhase.WAITING
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    idle_since: datetime | None = None
    wrote: bool | None = None
    absences: int = 0
    node: str | None = None
    exit_code: int | None = None
    exit_reason: str | None = None
    last_lines: str | None = None
    exited_at: datetime | None = None
    launched_at: datetime | None = None
    arrived: int | None = None  # this and the next: see weft_core.elastic.Member
    broken: int | None = None
    broken_at: datetime | None = None
    left: bool = False
    left_reason: str = ""

    @property
    def granted(self) -> bool:
        return self.phase is not LearnerPhase.WAITING

    @property
    def reported(self) -> bool:
        """Said itself how it ended."""
        return self.phase is LearnerPhase.EXITED

    @property
    def succeeded(self) -> bool:
        return self.reported and self.exit_code == 0


@dataclass(frozen=True)
class Sight:
    """What an answering engine said of the attempt's run; None: it does not know it."""

    observation: Observation | None
    at: datetime  # when it was asked, on the database's clock


@dataclass(frozen=True)
class ExitReport:
    """What a learner left in S3 before it reported."""

    exit_code: int
    reason: str


@dataclass(frozen=True)
class View:
    now: datetime  # the database's clock
    timings: TimingSettings
    job: JobView
    attempt: AttemptView | None = None
    learners: tuple[LearnerView, ...] = ()
    """All that the attempt ever had, in order of rank."""
    sight: Sight | None = None
    unreachable: str | None = None  # why the engine gave no answer
    exits: Mapping[int, ExitReport | None] = field(default_factory=dict)
    """Reports that were looked for in S3, by rank; None: there is none."""
    progress: str = ""  # newest 'image' event of this attempt
    progress_at: datetime | None = None
    rounds: tuple[Round, ...] = ()
    """Of an elastic attempt: the last two."""

    @property
    def members(self) -> tuple[LearnerView, ...]:
        """The learners that have not been lost."""
        return tuple(one for one in self.learners if not one.left)

    @property
    def gang(self) -> tuple[LearnerView, ...]:
        """Those members whose work counts: of an elastic attempt not those that have yet to join."""
        if not any(not one.open for one in self.rounds):
            return self.members
        return tuple(one for one in self.members if one.arrived is not None)

    @property
    def open(self) -> AttemptView | None:
        """The open attempt."""
        return self.attempt if self.attempt is not None and self.attempt.ended_at is None else None

    def since(self, moment: datetime) -> float:
        """Seconds from ``moment`` to now."""
        return (self.now - moment) / timedelta(seconds=1)


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
        rows = session.scalars(select(Learner).where(Learner.attempt_id == attempt.id).order_by(Learner.rank))
        learners = tuple(_learner_view(one) for one in rows)
        if job.manifest.get("elastic"):
            rounds = tuple(read_rounds(session, attempt.id))
        if job.state == JobState.PENDING:
            progress, progress_at = _progress(session, job_id, attempt.n)
    launching = attempt is not None and any(one.launched_at is None for one in learners if not one.left)
    found = _job_view(session, job, launching=launching)
    return View(now, timings, found, attempt, learners, progress=progress, progress_at=progress_at, rounds=rounds)


def _job_view(session: Session, job: Job, launching: bool) -> JobView:
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


def _active_at(session: Session, job: Job) -> datetime | None:
    """The newest sign of work in its newest attempt: its learners' load, or a line."""
    loads = (
        select(func.max(func.coalesce(Learner.active_at, Learner.started_at)))
        .join(Attempt, Attempt.id == Learner.attempt_id)
        .where(Attempt.job_id == job.id, Attempt.n == job.attempt)
    )
    lines = select(func.max(LogSource.written_at)).where(LogSource.job_id == job.id, LogSource.attempt == job.attempt)
    found = [one for one in (session.scalar(loads), session.scalar(lines)) if one is not None]
    return max(found, default=None)


def _endpoints(session: Session, job: Job) -> tuple[str, ...]:
    """Of the stores that the manifest names, and of the model version that it means; one that is not kept any more is
    the API's to complain about."""
    stores = job.manifest.get("data_stores", [])
    kept = {store["datastore"] for store in stores if store.get("datastore")}
    found = {store["connection"]["auth_url"] for store in stores if store.get("connection")}
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
        outcome=Outcome(row.outcome) if row.outcome else None,
        reason=row.reason,
        error_code=row.error_code,
        exit_code=row.exit_code,
        ended_at=row.ended_at,
        grow_at=row.grow_at,
        no_output_at=row.no_output_at,
        stalled_at=row.stalled_at,
        stalled_since=row.stalled_since,
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
        idle_since=row.idle_since,
        wrote=row.wrote,
        absences=row.absences,
        node=row.node,
        exit_code=row.exit_code,
        exit_reason=row.exit_reason,
        last_lines=row.last_lines,
        exited_at=row.exited_at,
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
