"""Jobs on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from weft_api.metrics.schemas import BestAndLast
from weft_core.launch import Resources

_JOB_EXAMPLE: dict[str, Any] = {
    "id": "job-4k9x2m7qd1ze",
    "name": "mnist-horovod",
    "description": "Handwritten digits on two learners",
    "labels": {"team": "vision"},
    "state": "PROCESSING",
    "desired": "RUNNING",
    "reason": "user code runs in 2 of 2 learners",
    "error_code": None,
    "condition": None,
    "engine": "local",
    "priority": 50,
    "framework": {
        "name": "horovod",
        "version": "0.28.1-torch2.13",
        "launcher": "horovod",
        "command": "python train.py --epochs 2",
    },
    "learners": 2,
    "resources": {"cpus": 1, "gpus": 0, "memory": 1073741824, "storage": None, "gpu_type": None, "extra": {}},
    "attempt": 1,
    "retries": 2,
    "failures": 0,
    "code_sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "rerun_of": None,
    "checkpoint_of": None,
    "project": "default",
    "user": "admin",
    "created_at": "2026-01-31T08:15:02.512345Z",
    "started_at": "2026-01-31T08:15:09.018211Z",
    "ended_at": None,
    "state_since": "2026-01-31T08:15:09.018211Z",
    "queue_position": None,
    "metrics": {"train/loss": {"last": 0.0556, "min": 0.0519, "max": 2.2847, "step": 11990, "time": 1_769_847_309_000}},
}


class FrameworkView(BaseModel):
    name: str
    version: str
    launcher: str
    command: str


class JobView(BaseModel):
    """A job as lists show it."""

    model_config = ConfigDict(title="Job", json_schema_extra={"examples": [_JOB_EXAMPLE]})

    id: str
    name: str
    description: str
    labels: dict[str, str]
    state: str
    desired: str
    reason: str
    error_code: str | None
    condition: str | None
    engine: str
    priority: int
    framework: FrameworkView
    learners: int
    resources: Resources
    attempt: int
    retries: int
    failures: int
    code_sha256: str | None
    rerun_of: str | None
    checkpoint_of: dict[str, Any] | None = Field(
        default=None, description="The other job's checkpoint that it began with: job, generation, attempt, at, …"
    )
    project: str
    user: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    state_since: datetime
    queue_position: int | None = Field(default=None, description="Jobs before it in its engine's queue, plus one.")
    metrics: dict[str, BestAndLast] = Field(
        default_factory=dict, description="Newest and best values by `group/name`; the first 200 that it reports."
    )


class LearnerView(BaseModel):
    learner: int = Field(description="LEARNER_ID, from 1.")
    phase: str
    node: str | None = Field(description="Where its engine says that it runs, or ran.")
    address: str | None
    ports: list[int] = Field(default_factory=list, description="Of this address, its own to use.")
    exit_code: int | None
    exit_reason: str | None
    lost: str | None = Field(default=None, description="Why the others went on without it, in an elastic job.")


class RoundView(BaseModel):
    """Who trains together now, in an elastic job."""

    n: int
    learners: list[int] = Field(description="In order of rank; empty while they gather.")
    processes: int = Field(description="WORLD_SIZE.")
    reason: str = Field(description="Why there is another round than the one before.")
    opened_at: datetime
    closed_at: datetime | None


class AttemptView(BaseModel):
    n: int
    outcome: str | None
    reason: str
    exit_code: int | None
    created_at: datetime
    ended_at: datetime | None
    checkpoint: dict[str, Any] | None = Field(
        default=None, description="What it began with: generation, job, attempt, at (seconds), files, size (bytes)."
    )
    learners: list[LearnerView]
    round: RoundView | None = Field(default=None, description="The newest, of an elastic job.")


class JobDetail(JobView):
    """A job with its attempts and its manifest (in its canonical form, without credentials)."""

    model_config = ConfigDict(
        title="JobDetail",
        json_schema_extra={
            "examples": [
                {
                    **_JOB_EXAMPLE,
                    "attempts": [
                        {
                            "n": 1,
                            "outcome": None,
                            "reason": "",
                            "exit_code": None,
                            "created_at": "2026-01-31T08:15:03Z",
                            "ended_at": None,
                            "learners": [
                                {
                                    "learner": 1,
                                    "phase": "PROCESSING",
                                    "node": "gpu-1",
                                    "address": "10.4.2.17",
                                    "ports": [20417, 23882, 27740, 30961],
                                    "exit_code": None,
                                    "exit_reason": None,
                                }
                            ],
                        }
                    ],
                    "manifest": {"name": "mnist-horovod", "learners": 2},
                    "pretrained_model": "mnist@2",
                    "models": [],
                }
            ]
        },
    )

    attempts: list[AttemptView]
    manifest: dict[str, Any]
    pretrained_model: str | None = Field(description="The registry's version that it starts from, by its number.")
    models: list[str] = Field(description="The registry's versions that its results are.")


class JobPage(BaseModel):
    jobs: list[JobView]
    next_cursor: str | None = Field(description="Of the next page; null on the last.")


Overrides = Annotated[
    dict[Annotated[str, Field(max_length=200)], Annotated[str, Field(max_length=10_000)]],
    Field(max_length=100, description="Values that replace the manifest's, by path.", examples=[{"learners": "2"}]),
]


class Keepalive(BaseModel):
    """The job ends with its client: when PUT /jobs/{id}/keepalive has not come for ``seconds``, it is halted."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"seconds": 45, "idle_seconds": 3600}]})

    seconds: int = Field(ge=5, le=86_400)
    idle_seconds: int | None = Field(
        default=None,
        ge=5,
        le=30 * 86_400,
        description="Halt it, too, when for so long no learner has printed a line or used 5 % of a CPU or GPU.",
    )


class KeepaliveAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"until": "2026-01-31T08:15:47Z"}]})

    until: datetime | None = Field(description="Halted then, unless asked for again; null: it outlives its client.")


class SubmitBody(BaseModel):
    """A submission as JSON; the code has been sent before (PUT /code/{sha256})."""

    model_config = ConfigDict(
        extra="forbid",
        title="Submission",
        json_schema_extra={
            "examples": [
                {
                    "manifest": "name: hello\nframework: {name: pytorch, command: echo hello}\n",
                    "code_sha256": None,
                    "set": {"learners": "2"},
                }
            ]
        },
    )

    manifest: str = Field(description="The manifest, as YAML text.")
    code_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    set: Overrides = Field(default_factory=dict)
    keepalive: Keepalive | None = None


class HaltBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"grace_seconds": 60}]})

    grace_seconds: int | None = Field(
        default=None, ge=0, le=86_400, description="From SIGTERM to SIGKILL; default: the installation's."
    )


class RerunBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"set": {"learners": "4"}, "from_checkpoint": True}]}
    )

    manifest: str | None = Field(
        default=None,
        description="Instead of the job's, which GET /jobs/{id}/manifest gives to be edited. Connections without "
        "credentials have those of the job's data store with the same id and auth_url.",
    )
    code_sha256: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="Instead of the job's code; sent before."
    )
    set: Overrides = Field(default_factory=dict)
    from_checkpoint: bool | Annotated[str, Field(min_length=1, max_length=64)] = Field(
        default=False,
        description="Begin with a copy of the last complete checkpoint that the job has now, or of the one with this "
        "`generation`, as GET /jobs/{id}/checkpoints lists them.",
    )


class ValidManifest(BaseModel):
    """What a manifest means, everything resolved."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "valid": True,
                    "manifest": {"name": "hello", "learners": 1, "engine": "local"},
                    "notes": ["framework version 1.5.0-py3 runs on image tensorflow:2.21.0"],
                }
            ]
        }
    )

    valid: bool = True
    manifest: dict[str, Any]
    notes: list[str] = Field(description="What is good to know but no error.")
