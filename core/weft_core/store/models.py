"""The schema. The database itself refuses what must never be (partial unique indexes, checks, foreign keys).

Every row a tenant owns carries its ``project_id``; reads go through :class:`weft_core.store.scope.Scope`.
Times are ``timestamptz`` from the database's clock (``now()``), so that workers' clocks never matter.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from weft_core.lifecycle import Desired, JobState, LearnerPhase

# Constraint names must be stable, as migrations refer to them.
_NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=_NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own interface
        str: Text,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[str]: JSONB,
    }


def _one_of(column: str, values: type) -> str:
    return f"{column} in ({', '.join(repr(str(v)) for v in values)})"  # type: ignore[attr-defined]


def _created() -> Mapped[datetime]:
    return mapped_column(server_default=func.now())


def _project(primary_key: bool = False) -> Mapped[str]:
    return mapped_column(ForeignKey("projects.id", ondelete="CASCADE"), primary_key=primary_key)


class Installation(Base):
    """One row: the identity that labels everything this installation creates on engines."""

    __tablename__ = "installation"
    __table_args__ = (CheckConstraint("singleton", name="one_row"),)
    singleton: Mapped[bool] = mapped_column(Boolean, primary_key=True)
    id: Mapped[str]
    created_at: Mapped[datetime] = _created()


# --- who ---------------------------------------------------------------------------------------------------------


class User(Base):
    __tablename__ = "users"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    email: Mapped[str | None]
    password_hash: Mapped[str | None]  # argon2id; none = signs in with tokens only
    is_admin: Mapped[bool] = mapped_column(server_default=text("false"))
    disabled_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = _created()


class Project(Base):
    """The tenant."""

    __tablename__ = "projects"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    # What its running jobs may hold at once: {cpus, gpus, memory, jobs}; what is not in it has no limit.
    quota: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    created_at: Mapped[datetime] = _created()


class Member(Base):
    __tablename__ = "members"
    __table_args__ = (CheckConstraint("role in ('owner', 'editor', 'viewer')", name="role"),)
    project_id: Mapped[str] = _project(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True)
    role: Mapped[str]
    created_at: Mapped[datetime] = _created()


class Token(Base):
    """An API token, or a browser's session. Only its SHA-256 is kept: tokens carry 256 random bits, so a slow hash
    would add nothing."""

    __tablename__ = "tokens"
    __table_args__ = (CheckConstraint("kind in ('api', 'browser')", name="kind"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = _project()
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    prefix: Mapped[str]  # the first characters, to recognise it by in lists
    sha256: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime] = _created()
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    # Of a session: each use moves expires_at on, up to this; and the token that it was opened with, if any.
    kind: Mapped[str] = mapped_column(server_default="api")
    ends_at: Mapped[datetime | None]
    opened_with: Mapped[str | None] = mapped_column(ForeignKey("tokens.id", ondelete="CASCADE"), index=True)


# --- what a project keeps on the server --------------------------------------------------------------------------


class Secret(Base):
    """An encrypted value. ``job_id`` is set for credentials lifted out of a manifest; those have no user-given name."""

    __tablename__ = "secrets"
    __table_args__ = (UniqueConstraint("project_id", "name"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = _project()
    name: Mapped[str]  # for a manifest's credentials "<job id>/<data store id>"
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    ciphertext: Mapped[bytes] = mapped_column(LargeBinary)  # MultiFernet token
    created_at: Mapped[datetime] = _created()
    updated_at: Mapped[datetime] = _created()


class Datastore(Base):
    """An S3 endpoint with credentials that manifests name by ``datastore: NAME``."""

    __tablename__ = "datastores"
    __table_args__ = (UniqueConstraint("project_id", "name"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = _project()
    name: Mapped[str]
    endpoint: Mapped[str]  # e.g. https://s3.eu-central-1.amazonaws.com
    region: Mapped[str | None]
    secret_id: Mapped[str] = mapped_column(ForeignKey("secrets.id"))  # JSON {user_name, password, session_token?}
    created_at: Mapped[datetime] = _created()


class CodeBundle(Base):
    """A zip of training code in the installation's bucket under ``code/<project>/<sha256>.zip``."""

    __tablename__ = "code_bundles"
    project_id: Mapped[str] = _project(primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    files: Mapped[int]
    created_at: Mapped[datetime] = _created()


# --- jobs --------------------------------------------------------------------------------------------------------


class Job(Base):
    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(_one_of("state", JobState), name="state"),
        CheckConstraint(_one_of("desired", Desired), name="desired"),
        ForeignKeyConstraint(["project_id", "code_sha256"], ["code_bundles.project_id", "code_bundles.sha256"]),
        Index("ix_jobs_due", "next_step_at", postgresql_where=text("next_step_at is not null")),
        Index("ix_jobs_listing", "project_id", text("created_at desc"), text("id desc")),
        Index(
            "ix_jobs_queue", "engine", text("priority desc"), "created_at", postgresql_where=text("state = 'QUEUED'")
        ),
        Index("ix_jobs_labels", "labels", postgresql_using="gin"),
        Index("ix_jobs_pretrained_id", "pretrained_id", postgresql_where=text("pretrained_id is not null")),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = _project()
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    name: Mapped[str]
    labels: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    manifest: Mapped[dict[str, Any]]  # canonical form, without credentials (they are in secrets)
    code_sha256: Mapped[str | None]  # none for a command that needs no code
    engine: Mapped[str]
    priority: Mapped[int]
    learners: Mapped[int]
    retries: Mapped[int]
    rerun_of: Mapped[str | None]  # the job this one repeats; no foreign key, as that one may be deleted
    pretrained_id: Mapped[str | None]  # the model version that was resolved at submit; it may be deleted, too
    # The other job's checkpoint of which it has a copy to begin with: {job, generation, attempt, at, files, size}.
    checkpoint_of: Mapped[dict[str, Any] | None]

    state: Mapped[str] = mapped_column(server_default=JobState.QUEUED.value)
    desired: Mapped[str] = mapped_column(server_default=Desired.RUNNING.value)
    reason: Mapped[str] = mapped_column(server_default="")  # why it is in this state, for the user
    error_code: Mapped[str | None]  # FfDL's code where one fits: S100, C201, …
    condition: Mapped[str | None]  # what is unusual just now: 'Unreachable since …'
    attempt: Mapped[int] = mapped_column(server_default="0")  # n of the newest attempt; 0 before the first
    failures: Mapped[int] = mapped_column(server_default="0")  # attempts that counted against retries

    # Of a job that ends with the program that launched it (docs/workers-api.md); none = it outlives it.
    keepalive_seconds: Mapped[int | None]
    keepalive_until: Mapped[datetime | None]  # halted when this has passed; its client moves it on
    idle_seconds: Mapped[int | None]  # halted when nothing has been printed and no CPU used for so long

    traceparent: Mapped[str | None]  # W3C's form: the request that submitted it (weft_core.tracing)
    created_at: Mapped[datetime] = _created()
    state_since: Mapped[datetime] = _created()
    started_at: Mapped[datetime | None]  # first PROCESSING
    ended_at: Mapped[datetime | None]

    # The lease (docs/leases.md): who may step this job until when; version guards the write-back.
    version: Mapped[int] = mapped_column(BigInteger, server_default="0")
    lease_token: Mapped[str | None]
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    next_step_at: Mapped[datetime | None] = mapped_column(server_default=func.now())  # none = nothing left to do


class Attempt(Base):
    """One try of a job's gang. Written before anything is created on an engine."""

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("job_id", "n"),
        Index("uq_attempts_open", "job_id", unique=True, postgresql_where=text("ended_at is null")),
        Index(
            "ix_attempts_logs_due", "logs_due", postgresql_where=text("ended_at is not null and logs_due is not null")
        ),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = _project()
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    n: Mapped[int]
    engine: Mapped[str]
    run_name: Mapped[str] = mapped_column(unique=True)
    resources: Mapped[dict[str, Any]]  # per learner, what admission counted: {cpus, gpus, memory, learners}
    token_sha256: Mapped[str] = mapped_column(unique=True)
    token_ciphertext: Mapped[bytes] = mapped_column(LargeBinary)  # so that launch can be repeated after a crash
    created_at: Mapped[datetime] = _created()
    launched_at: Mapped[datetime | None]
    held_at: Mapped[datetime | None]  # last look at which the engine's own queue still held it back
    grow_at: Mapped[datetime | None]  # an elastic one: not before this it is given more learners
    stop_requested_at: Mapped[datetime | None]  # from here on heartbeats answer stop
    grace_seconds: Mapped[int | None]
    outcome: Mapped[str | None]  # decided first, then learners are stopped, then ended_at is set
    reason: Mapped[str] = mapped_column(server_default="")
    error_code: Mapped[str | None]
    exit_code: Mapped[int | None]
    ended_at: Mapped[datetime | None]  # all learners confirmed gone
    logs_due: Mapped[datetime | None] = mapped_column(server_default=func.now())
    """Once it has ended: not before this its log is moved to S3. None: all of it is there."""
    # What learner 1 reported, for the lineage of models: {data, pretrained} → {files, bytes, sha256} of the listings.
    inputs: Mapped[dict[str, Any] | None]
    outputs: Mapped[dict[str, Any] | None]  # of the results: {files, bytes, sha256}
    started_from: Mapped[dict[str, Any] | None]  # the checkpoint that it began with: as jobs.checkpoint_of
    no_output_at: Mapped[datetime | None]  # when it was warned of that nothing was written
    stalled_at: Mapped[datetime | None]  # when all learners were found idle; from here on heartbeats ask for stacks
    stalled_since: Mapped[datetime | None]  # and since when they had been


class Learner(Base):
    __tablename__ = "learners"
    __table_args__ = (CheckConstraint(_one_of("phase", LearnerPhase), name="phase"),)
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)  # from 0; LEARNER_ID = rank + 1
    project_id: Mapped[str] = _project()
    phase: Mapped[str] = mapped_column(server_default=LearnerPhase.WAITING.value)
    phase_since: Mapped[datetime] = _created()
    instance: Mapped[str | None]  # the agent that holds the start grant
    node: Mapped[str | None]  # where the engine says that it runs
    address: Mapped[str | None]
    ports: Mapped[list[int] | None] = mapped_column(JSONB)
    launched_at: Mapped[datetime | None]  # its engine was asked to start it
    started_at: Mapped[datetime | None]  # start grant
    # Of elastic attempts (weft_core.elastic): the round that it is ready for, the one in which its workers failed.
    arrived: Mapped[int | None]
    arrived_at: Mapped[datetime | None]
    broken: Mapped[int | None]
    broken_at: Mapped[datetime | None]
    left_at: Mapped[datetime | None]  # lost: the others go on without it, and it may do nothing any more
    left_reason: Mapped[str | None]
    storing_at: Mapped[datetime | None]  # storing grant
    heartbeat_at: Mapped[datetime | None]
    active_at: Mapped[datetime | None]  # the last heartbeat that told of work
    idle_since: Mapped[datetime | None]  # by its last heartbeat: no log, CPU or GPU since then; none: busy, or unknown
    wrote: Mapped[bool | None]  # whether it has written into RESULT_DIR or CHECKPOINT_DIR; none: unknown
    absent_since: Mapped[datetime | None]  # first look at which an answering engine did not know it
    absences: Mapped[int] = mapped_column(server_default="0")
    exit_code: Mapped[int | None]
    exit_reason: Mapped[str | None]
    last_lines: Mapped[str | None]  # the end of its log, for the reason of a failure
    exited_at: Mapped[datetime | None]
    metrics_next: Mapped[int] = mapped_column(BigInteger, server_default="0")  # its batches below this are taken in


class Round(Base):
    """A gang of an elastic attempt: see :mod:`weft_core.elastic`. The newest one is the counter."""

    __tablename__ = "rounds"
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[str] = _project()
    members: Mapped[list[int]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))  # in order of rank
    restart: Mapped[bool]
    reason: Mapped[str]
    opened_at: Mapped[datetime] = _created()
    closed_at: Mapped[datetime | None]


class Event(Base):
    """What happened to a job, in order; written in the transaction that made it happen."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_job", "job_id", "id"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    project_id: Mapped[str] = _project()
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    attempt: Mapped[int | None]
    kind: Mapped[str]  # submitted | state | waiting | image | learner | condition | desired | model | warning
    state: Mapped[str | None]  # of kind 'state': the state entered
    message: Mapped[str]
    data: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    created_at: Mapped[datetime] = _created()


# --- the registry of models --------------------------------------------------------------------------------------


class Model(Base):
    """A name under which results are kept as numbered versions. Its row is the lock that gives the numbers."""

    __tablename__ = "models"
    __table_args__ = (UniqueConstraint("project_id", "name"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = _project()
    name: Mapped[str]
    counter: Mapped[int] = mapped_column(server_default="0")  # the last number given; a number is never given again
    created_at: Mapped[datetime] = _created()
    updated_at: Mapped[datetime] = _created()


class ModelVersion(Base):
    """One job's results, as they were when it ended; never changed. ``container`` is none for results in the
    installation's own store, where ``prefix`` is a whole key; else ``datastore`` or ``endpoint`` says where it is."""

    __tablename__ = "model_versions"
    __table_args__ = (
        UniqueConstraint("model_id", "number"),
        UniqueConstraint("model_id", "job_id"),  # a job's results are one version, however often they are registered
        Index("ix_model_versions_job_id", "job_id"),
        Index("ix_model_versions_parent_id", "parent_id", postgresql_where=text("parent_id is not null")),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = _project()
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"))
    number: Mapped[int]  # from 1
    job_id: Mapped[str]  # no foreign key: the job may be deleted, its lineage stays
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    parent_id: Mapped[str | None]  # the version that the job started from; it may be deleted, too
    datastore: Mapped[str | None]
    endpoint: Mapped[str | None]
    region: Mapped[str | None]
    secret_id: Mapped[str | None] = mapped_column(ForeignKey("secrets.id"))  # of a connection in the job's manifest
    container: Mapped[str | None]
    prefix: Mapped[str]  # no slash at its ends
    files: Mapped[dict[str, Any] | None]  # {files, bytes, sha256} of the listing; none: nobody could list it then
    lineage: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = _created()


class ModelPromotion(Base):
    """A stage of a model that came to a version, or was taken off it. The newest row of a stage is what holds."""

    __tablename__ = "model_promotions"
    __table_args__ = (Index("ix_model_promotions_stage", "model_id", "stage", text("id desc")),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    project_id: Mapped[str] = _project()
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"))
    stage: Mapped[str]
    number: Mapped[int | None]  # none: taken away
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime] = _created()


class IdempotencyKey(Base):
    """The answer to a POST that may be repeated; inserted in the transaction that did the work."""

    __tablename__ = "idempotency_keys"
    project_id: Mapped[str] = _project(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    route: Mapped[str]
    body_sha256: Mapped[str]
    resource_id: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)


# --- logs --------------------------------------------------------------------------------------------------------


class LogCursor(Base):
    """The counter row: appending a chunk locks it, so lines are numbered in commit order and a cursor never skips."""

    __tablename__ = "log_cursors"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    project_id: Mapped[str] = _project()
    next_line: Mapped[int] = mapped_column(BigInteger, server_default="0")
    bytes: Mapped[int] = mapped_column(BigInteger, server_default="0")
    archived: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Lines below it are in S3 (log_frames), those from it on are here (log_chunks)."""
    latest: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """The newest time of any line, in milliseconds since the epoch."""
    paid_until: Mapped[datetime | None]
    """The rate limit: each batch moves it on by the seconds that its lines are worth."""


class LogSource(Base):
    """How far the batches of one learner have been taken in: what makes an agent's repeated send harmless, also when
    the batch is in S3 by now."""

    __tablename__ = "log_sources"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[str] = _project()
    next_sequence: Mapped[int] = mapped_column(BigInteger)
    written_at: Mapped[datetime] = _created()


class LogChunk(Base):
    """Consecutive lines of one learner, as its agent sent them: UTF-8, each line ended by a newline."""

    __tablename__ = "log_chunks"
    __table_args__ = (Index(None, "job_id", "rank", "first_line"), Index(None, "job_id", "latest"))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    first_line: Mapped[int] = mapped_column(BigInteger, primary_key=True)  # per job, from 0
    project_id: Mapped[str] = _project()
    attempt: Mapped[int]
    rank: Mapped[int]
    lines: Mapped[int]
    body: Mapped[bytes] = mapped_column(LargeBinary)
    times: Mapped[bytes] = mapped_column(
        LargeBinary
    )  # weft_core.log_archive.pack_times: one a line, the learner's clock
    latest: Mapped[int] = mapped_column(
        BigInteger
    )  # the newest time of the job's lines up to the end of this chunk, ms
    created_at: Mapped[datetime] = _created()


class LogFrame(Base):
    """Consecutive lines of a job in S3: one compressed piece of an object (see weft_core.log_archive)."""

    __tablename__ = "log_frames"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    first_line: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    project_id: Mapped[str] = _project()
    lines: Mapped[int]
    object: Mapped[str]  # the key
    start: Mapped[int] = mapped_column(BigInteger)  # where in the object it begins
    size: Mapped[int]  # bytes there
    attempts: Mapped[list[int]] = mapped_column(ARRAY(Integer))  # whose lines are in it
    ranks: Mapped[list[int]] = mapped_column(ARRAY(Integer))
    latest: Mapped[int] = mapped_column(BigInteger)  # as of the last of its chunks
    arrived_at: Mapped[datetime]  # when the last of its chunks came


# --- metrics -----------------------------------------------------------------------------------------------------
#
# A batch is kept as it came until a few thousand points wait; then they are folded (weft_api.metrics.fold): into chunks
# of records, as they were, and into the blocks of their series. What is read is always the folded and what waits.


class MetricCursor(Base):
    """The counter row: taking in a batch locks it, so records are numbered in commit order."""

    __tablename__ = "metric_cursors"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    project_id: Mapped[str] = _project()
    next_batch: Mapped[int] = mapped_column(BigInteger, server_default="0")
    next_record: Mapped[int] = mapped_column(BigInteger, server_default="1")  # of the user's own; rindex
    points: Mapped[int] = mapped_column(BigInteger, server_default="0")  # values of the user's records
    bytes: Mapped[int] = mapped_column(BigInteger, server_default="0")  # of them, as they are stored
    system_points: Mapped[int] = mapped_column(BigInteger, server_default="0")
    series: Mapped[int] = mapped_column(server_default="0")  # folded ones
    waiting: Mapped[int] = mapped_column(server_default="0")  # points in metric_batches
    dropped: Mapped[list[str]] = mapped_column(server_default=text("'[]'::jsonb"))  # of what some is: see LIMITS


class MetricBatch(Base):
    """What one call of a learner brought, until it is folded."""

    __tablename__ = "metric_batches"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    n: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    project_id: Mapped[str] = _project()
    attempt: Mapped[int]
    rank: Mapped[int]
    first_record: Mapped[int] = mapped_column(BigInteger)
    records: Mapped[int]  # of kind user; the rest is of kind system
    system: Mapped[int]
    body: Mapped[bytes] = mapped_column(LargeBinary)  # zlib; a line of JSON a record, the user's first


class MetricRecords(Base):
    """Consecutive records of the user's, in the order of their numbers; never changed."""

    __tablename__ = "metric_records"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    first_record: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    project_id: Mapped[str] = _project()
    records: Mapped[int]
    last_time: Mapped[int] = mapped_column(BigInteger)  # the latest in it, ms since the epoch
    body: Mapped[bytes] = mapped_column(LargeBinary)  # zlib; a line of JSON a record


class MetricSeries(Base):
    """One value of one learner in one attempt; what is said here is of its folded points."""

    __tablename__ = "metric_series"
    __table_args__ = (UniqueConstraint("job_id", "attempt", "rank", "kind", "group", "name"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    project_id: Mapped[str] = _project()
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    rank: Mapped[int]
    kind: Mapped[str]  # user | system
    group: Mapped[str]
    name: Mapped[str]
    points: Mapped[int] = mapped_column(BigInteger)
    first_step: Mapped[int] = mapped_column(BigInteger)
    last_step: Mapped[int] = mapped_column(BigInteger)
    first_time: Mapped[int] = mapped_column(BigInteger)  # ms since the epoch, the learner's clock
    last_time: Mapped[int] = mapped_column(BigInteger)
    last: Mapped[float] = mapped_column(Double)  # may be NaN or infinite
    min: Mapped[float | None] = mapped_column(Double)  # of the finite ones
    max: Mapped[float | None] = mapped_column(Double)


class MetricBlock(Base):
    """1024 consecutive points of a series (the last block: fewer), and what is known of each 32 of them."""

    __tablename__ = "metric_blocks"
    series_id: Mapped[int] = mapped_column(ForeignKey("metric_series.id", ondelete="CASCADE"), primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[str] = _project()
    points: Mapped[int]
    first_step: Mapped[int] = mapped_column(BigInteger)  # the smallest and the largest, in whatever order they came
    last_step: Mapped[int] = mapped_column(BigInteger)
    first_time: Mapped[int] = mapped_column(BigInteger)
    last_time: Mapped[int] = mapped_column(BigInteger)
    steps_rise: Mapped[bool]
    times_rise: Mapped[bool]
    summary: Mapped[bytes] = mapped_column(LargeBinary)  # weft_api.metrics.points says how
    body: Mapped[bytes] = mapped_column(LargeBinary)


class JobMetric(Base):
    """What lists show of a job, and are sorted by: one learner's newest and best value, all attempts together."""

    __tablename__ = "job_metrics"
    __table_args__ = (Index("ix_job_metrics_listing", "project_id", "name"),)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)  # group/name
    project_id: Mapped[str] = _project()
    rank: Mapped[int]  # the lowest of those that report it
    last: Mapped[float | None] = mapped_column(Double)  # none: it is not finite
    min: Mapped[float | None] = mapped_column(Double)
    max: Mapped[float | None] = mapped_column(Double)
    step: Mapped[int | None] = mapped_column(BigInteger)  # of the last


# --- engines -----------------------------------------------------------------------------------------------------


class EngineStatus(Base):
    """What the workers last saw of an engine; its row is the lock that serialises admission. Belongs to no project."""

    __tablename__ = "engines"
    __table_args__ = (CheckConstraint("type in ('local', 'ray', 'kubernetes')", name="type"),)
    name: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str]
    capacity: Mapped[dict[str, Any] | None]  # {cpus, memory, gpus, nodes: [...]}
    seen_at: Mapped[datetime | None]  # last answer
    unreachable_since: Mapped[datetime | None]
    error: Mapped[str | None]
