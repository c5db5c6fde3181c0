"""Jobs, their attempts and learners, and what happened to them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    LargeBinary,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.lifecycle.states import Desired, JobState, LearnerPhase
from weft_core.store.models.base import Base, created, one_of, project


class Job(Base):
    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(one_of("state", JobState), name="state"),
        CheckConstraint(one_of("desired", Desired), name="desired"),
        ForeignKeyConstraint(["project_id", "code_sha256"], ["code_bundles.project_id", "code_bundles.sha256"]),
        Index("ix_jobs_due", "next_step_at", postgresql_where=text("next_step_at is not null")),
        Index("ix_jobs_listing", "project_id", text("created_at desc"), text("id desc")),
        Index(
            "ix_jobs_queue", "engine", text("priority desc"), "created_at", postgresql_where=text("state = 'QUEUED'")
        ),
        Index(
            "ix_jobs_queue_project",
            "engine",
            "project_id",
            text("priority desc"),
            "created_at",
            "id",
            postgresql_where=text("state = 'QUEUED'"),
        ),
        Index("ix_jobs_ended", "project_id", "ended_at", "id", postgresql_where=text("ended_at is not null")),
        # The orders and conditions of lists. JobText serves conditions on labels and texts.
        Index(
            "ix_jobs_pinned", "project_id", text("created_at desc"), text("id desc"), postgresql_where=text("pinned")
        ),
        Index(
            "ix_jobs_duration",
            "project_id",
            text("(ended_at - started_at)"),
            "id",
            postgresql_where=text("started_at is not null and ended_at is not null"),
        ),
        Index(
            "ix_jobs_running",
            "project_id",
            "started_at",
            "id",
            postgresql_where=text("started_at is not null and ended_at is null"),
        ),
        Index(
            "ix_jobs_unstarted",
            "project_id",
            text("created_at desc"),
            text("id desc"),
            postgresql_where=text("started_at is null"),
        ),
        Index("ix_jobs_of_all", "state"),  # projects, to count them
        Index("ix_jobs_state", "project_id", "state", text("created_at desc"), text("id desc")),
        Index("ix_jobs_user", "project_id", "user_id", text("created_at desc"), text("id desc")),
        Index("ix_jobs_engine", "project_id", "engine", text("created_at desc"), text("id desc")),
        Index("ix_jobs_name", "project_id", text("lower(name)"), text("created_at desc"), text("id desc")),
        Index("ix_jobs_name_desc", "project_id", text("lower(name) desc"), text("created_at desc"), text("id desc")),
        Index("ix_jobs_experiment", "project_id", text("md5(name)"), text("created_at desc"), text("id desc")),
        Index("ix_jobs_overlay_id", "overlay_id", postgresql_where=text("overlay_id is not null")),
        Index("ix_jobs_pretrained_id", "pretrained_id", postgresql_where=text("pretrained_id is not null")),
        Index(
            "ix_jobs_checkpoint_of",
            text("(checkpoint_of ->> 'job')"),
            postgresql_where=text("checkpoint_of is not null"),
        ),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    kind: Mapped[str] = mapped_column(server_default="train")  # train, or packages: a build of packages for other jobs
    name: Mapped[str]
    labels: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    manifest: Mapped[dict[str, Any]]  # canonical form, without credentials (they are in secrets)
    notes: Mapped[str] = mapped_column(server_default="")  # what its users write down about it
    pinned: Mapped[bool] = mapped_column(server_default=text("false"))  # shown above the project's other jobs
    code_sha256: Mapped[str | None]  # none for a command that needs no code
    engine: Mapped[str]
    priority: Mapped[int]
    learners: Mapped[int]
    retries: Mapped[int]
    rerun_of: Mapped[str | None]  # the job this one repeats; no foreign key, as that one may be deleted
    overlay_id: Mapped[str | None] = mapped_column(ForeignKey("overlays.id"))  # the packages that its image lacks
    pretrained_id: Mapped[str | None]  # the model version that was resolved at submit; it may be deleted, too
    # The budget that its attempts are charged to.
    budget_id: Mapped[str | None] = mapped_column(ForeignKey("budgets.id", ondelete="SET NULL"))
    # The other job's checkpoint that it begins with. A copy: {job, generation, attempt, at, files, size}. The stored
    # files themselves: {job, shared: true}, see store/checkpoints.py.
    checkpoint_of: Mapped[dict[str, Any] | None]

    state: Mapped[str] = mapped_column(server_default=JobState.QUEUED.value)
    desired: Mapped[str] = mapped_column(server_default=Desired.RUNNING.value)
    halt_reason: Mapped[str | None]  # why it is to be halted, if its user has not asked for it
    reason: Mapped[str] = mapped_column(server_default="")  # why it is in this state, for the user
    error_code: Mapped[str | None]  # FfDL's code where one fits: S100, C201, …
    predecessors: Mapped[int] = mapped_column(server_default="0")  # jobs that must end before it enters its queue
    place: Mapped[int | None]  # in its engine's queue, from 1, as the last plan had it
    condition: Mapped[str | None]  # an unusual circumstance: 'Unreachable since …'
    attempt: Mapped[int] = mapped_column(server_default="0")  # n of the newest attempt; 0 before the first
    failures: Mapped[int] = mapped_column(server_default="0")  # attempts that counted against retries

    # Of a job that ends with the program that launched it (docs/workers-api.md); none = it outlives it.
    keepalive_seconds: Mapped[int | None]
    keepalive_until: Mapped[datetime | None]  # halted when this has passed; its client moves it on
    idle_seconds: Mapped[int | None]  # halted when nothing has been printed and no CPU used for so long

    traceparent: Mapped[str | None]  # W3C's form: the request that submitted it (weft_core.tracing)
    created_at: Mapped[datetime] = created()
    state_since: Mapped[datetime] = created()
    started_at: Mapped[datetime | None]  # first PROCESSING
    ended_at: Mapped[datetime | None]
    removed: Mapped[dict[str, Any] | None]  # what retention has removed: {logs, metrics, results, events} → {at, …}

    # The lease (docs/leases.md): the worker that may step this job, and until when; version guards the write-back.
    version: Mapped[int] = mapped_column(BigInteger, server_default="0")
    lease_token: Mapped[str | None]
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    next_step_at: Mapped[datetime | None] = mapped_column(server_default=func.now())  # none = nothing left to do


class Predecessor(Base):
    """A job that must end before another job enters its engine's queue (``after`` in the manifest)."""

    __tablename__ = "predecessors"
    __table_args__ = (
        CheckConstraint("ending in ('completed', 'failed', 'ended')", name="ending"),
        Index("ix_predecessors_open", "job_id", postgresql_where=text("ended_at is null")),
        Index("ix_predecessors_awaited", "predecessor_id", postgresql_where=text("ended_at is null")),
    )
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    predecessor_id: Mapped[str] = mapped_column(primary_key=True)  # no foreign key: that job may be deleted
    project_id: Mapped[str] = project()
    ending: Mapped[str]  # how it must end
    ended_at: Mapped[datetime | None]  # since when it counts as ended so, whatever becomes of it later


class JobText(Base):
    """The text of a job in which lists search, in lower case. Triggers of the database write it (migrations 0028 and
    0035)."""

    __tablename__ = "job_texts"
    __table_args__ = (
        Index("ix_job_texts_listing", "project_id", text("created_at desc"), text("job_id desc")),
        Index(
            "ix_job_texts_pieces",
            text("weft_pieces(project_id, body)"),
            postgresql_using="gin",
            postgresql_with={"fastupdate": "off"},
        ),
    )
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    body: Mapped[str]  # name, id and description, a line each
    project_id: Mapped[str] = project()
    created_at: Mapped[datetime]


class JobLabel(Base):
    """A label of a job, for lists. The same triggers write it."""

    __tablename__ = "job_labels"
    __table_args__ = (
        Index("ix_job_labels_listing", "project_id", "key", "value", text("created_at desc"), text("job_id desc")),
    )
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    project_id: Mapped[str] = project()
    created_at: Mapped[datetime]


class View(Base):
    """A list of jobs that a user has saved under a name, for the whole project."""

    __tablename__ = "views"
    project_id: Mapped[str] = project(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    query: Mapped[str]  # of the URL of the dashboard's list: its filters, order and columns
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    updated_at: Mapped[datetime] = created()


class Attempt(Base):
    """One try of a job's gang. Written before anything is created on an engine."""

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("job_id", "n"),
        Index("ix_attempts_ended", "ended_at", postgresql_where=text("ended_at is not null")),
        Index("uq_attempts_open", "job_id", unique=True, postgresql_where=text("ended_at is null")),
        Index(
            "ix_attempts_logs_due", "logs_due", postgresql_where=text("ended_at is not null and logs_due is not null")
        ),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    n: Mapped[int]
    engine: Mapped[str]
    run_name: Mapped[str] = mapped_column(unique=True)
    resources: Mapped[dict[str, Any]]  # per learner, what admission counted: {cpus, gpus, memory, learners}
    token_sha256: Mapped[str] = mapped_column(unique=True)
    mlflow_sha256: Mapped[str | None] = mapped_column(
        unique=True
    )  # of its token for MLflow's API; none: not granted yet
    token_ciphertext: Mapped[bytes] = mapped_column(LargeBinary)  # so that launch can be repeated after a crash
    created_at: Mapped[datetime] = created()
    launched_at: Mapped[datetime | None]
    held_at: Mapped[datetime | None]  # last observation in which the engine's own queue still held it back
    grow_at: Mapped[datetime | None]  # of an elastic attempt: it gets no more learners before this
    stop_requested_at: Mapped[datetime | None]  # from here on heartbeats answer stop
    grace_seconds: Mapped[int | None]
    preempted_by: Mapped[str | None]  # it is to save and end, for this job: 'job-… of project …'
    outcome: Mapped[str | None]  # decided first, then learners are stopped, then ended_at is set
    reason: Mapped[str] = mapped_column(server_default="")
    error_code: Mapped[str | None]
    exit_code: Mapped[int | None]
    ended_at: Mapped[datetime | None]  # all learners confirmed gone
    logs_due: Mapped[datetime | None] = mapped_column(server_default=func.now())
    """After its end: its log is moved to S3 no sooner than this. None: all of it is there."""
    # What learner 1 reported, for the lineage of models: {data, pretrained} → {files, bytes, sha256} of the listings.
    inputs: Mapped[dict[str, Any] | None]
    outputs: Mapped[dict[str, Any] | None]  # of the results: {files, bytes, sha256}
    started_from: Mapped[dict[str, Any] | None]  # the checkpoint that it began with: as jobs.checkpoint_of
    no_output_at: Mapped[datetime | None]  # when the warning came that nothing was written
    stalled_at: Mapped[datetime | None]  # when all learners were found idle; from here on heartbeats ask for stacks
    stalled_since: Mapped[datetime | None]  # and since when they had been
    look_at: Mapped[datetime | None]  # when it showed no step for long; until the answer, heartbeats ask for looks
    alive_at: Mapped[datetime | None]  # when the looks last showed that it gets on, or did not prove that it hangs
    verdict: Mapped[str | None]  # on the stall: which ranks wait for which; '': the stacks show too little


class Learner(Base):
    __tablename__ = "learners"
    __table_args__ = (CheckConstraint(one_of("phase", LearnerPhase), name="phase"),)
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)  # from 0; LEARNER_ID = rank + 1
    project_id: Mapped[str] = project()
    phase: Mapped[str] = mapped_column(server_default=LearnerPhase.WAITING.value)
    phase_since: Mapped[datetime] = created()
    instance: Mapped[str | None]  # the agent that holds the start grant
    node: Mapped[str | None]  # where the engine says that it runs
    address: Mapped[str | None]
    ports: Mapped[list[int] | None] = mapped_column(JSONB)
    launched_at: Mapped[datetime | None]  # its engine was asked to start it
    started_at: Mapped[datetime | None]  # start grant
    # Of elastic attempts (lifecycle.rounds): the round that it is ready for, the one in which its workers failed.
    arrived: Mapped[int | None]
    arrived_at: Mapped[datetime | None]
    broken: Mapped[int | None]
    broken_at: Mapped[datetime | None]
    left_at: Mapped[datetime | None]  # lost: the other learners go on without it, and it may do nothing any more
    left_reason: Mapped[str | None]
    storing_at: Mapped[datetime | None]  # storing grant
    heartbeat_at: Mapped[datetime | None]
    heard_since: Mapped[datetime | None]  # the first heartbeat after the last long silence
    active_at: Mapped[datetime | None]  # the last heartbeat that reported work, or the end of its program
    idle_since: Mapped[datetime | None]  # by its last heartbeat: no log, CPU or GPU since then; none: busy, or unknown
    still_since: Mapped[datetime | None]  # by its last heartbeat: no line, metric or byte on a disk since then
    pause_seconds: Mapped[float | None]  # the longest time between two such signs of a step
    stacks: Mapped[dict[str, Any] | None]  # of its processes, during a stall: weft_core.hangs.report
    stacks_at: Mapped[datetime | None]
    wrote: Mapped[bool | None]  # whether it has written into its folder, RESULT_DIR or CHECKPOINT_DIR; none: unknown
    saved_at: Mapped[datetime | None]  # the time of its last stored checkpoint, by its last heartbeat
    absent_since: Mapped[datetime | None]  # first observation in which the engine did not know it
    absences: Mapped[int] = mapped_column(server_default="0")
    exit_code: Mapped[int | None]
    exit_reason: Mapped[str | None]
    last_lines: Mapped[str | None]  # the end of its log, for the reason of a failure
    exited_at: Mapped[datetime | None]
    kept_until: Mapped[datetime | None]  # its command has failed, and it stays for a look inside
    leftovers: Mapped[dict[str, Any] | None]  # the files that its program has left in the job's folder
    metrics_next: Mapped[int] = mapped_column(BigInteger, server_default="0")  # its batches below this are taken in


class Round(Base):
    """A gang of an elastic attempt: see :mod:`weft_core.lifecycle.rounds`. The newest one is the counter."""

    __tablename__ = "rounds"
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    members: Mapped[list[int]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))  # in order of rank
    restart: Mapped[bool]
    reason: Mapped[str]
    opened_at: Mapped[datetime] = created()
    closed_at: Mapped[datetime | None]


class Event(Base):
    """An event of a job, in order; written in the transaction that causes the event."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_job", "job_id", "id"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    project_id: Mapped[str] = project()
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    attempt: Mapped[int | None]
    kind: Mapped[
        str
    ]  # submitted | state | waiting | image | learner | condition | desired | edited | model | warning | rule
    state: Mapped[str | None]  # of kind 'state': the state entered
    message: Mapped[str]
    data: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    user_id: Mapped[str | None] = mapped_column(ForeignKey("users.id"))  # who caused it; none: Weft or a learner
    created_at: Mapped[datetime] = created()


class IdempotencyKey(Base):
    """The answer to a POST that may be repeated; inserted in the transaction that did the work."""

    __tablename__ = "idempotency_keys"
    project_id: Mapped[str] = project(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    route: Mapped[str]
    body_sha256: Mapped[str]
    resource_id: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
