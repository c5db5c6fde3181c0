"""Jobs on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints

from weft_api.metrics.schemas import BestAndLast
from weft_core.launch import Resources
from weft_core.lifecycle.states import TERMINAL, JobState

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
    "params": {"lr": "0.1"},
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
    state: str = Field(description="The state that the job is in.")
    desired: str = Field(description="The state that the user wants: RUNNING, HALTED or DELETED.")
    reason: str = Field(description="Why the job is in its state.")
    error_code: str | None = Field(description="FfDL's code for the error, if FfDL has one.")
    condition: str | None = Field(description="Something unusual about the job at the moment.")
    engine: str
    priority: int
    framework: FrameworkView
    learners: int = Field(description="Number of learners.")
    resources: Resources
    attempt: int = Field(description="Number of the newest attempt; 0 before the first.")
    retries: int = Field(description="How often the job may be tried again after a failure.")
    failures: int = Field(description="Number of failed attempts that count against `retries`.")
    code_sha256: str | None
    rerun_of: str | None = Field(description="The job that this job is a rerun of.")
    checkpoint_of: dict[str, Any] | None = Field(
        default=None,
        description="The checkpoint of another job that this job started from: job, generation, attempt, at and more.",
    )
    project: str
    user: str = Field(description="The user who submitted the job.")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    state_since: datetime
    removed: dict[str, datetime] = Field(
        default_factory=dict,
        description="The kinds of data of the job that the project no longer keeps (`logs`, `metrics`, `results`, "
        "`events`), with the time of their removal.",
    )
    pinned: bool = Field(default=False, description="The job is shown above the project's other jobs.")
    queue_position: int | None = Field(default=None, description="Position in the engine's queue, from 1.")
    metrics: dict[str, BestAndLast] = Field(
        default_factory=dict,
        description="Newest and best values by `group/name`, for the first 200 metrics that the job reports.",
    )
    params: dict[str, str] = Field(
        default_factory=dict,
        description="Parameters that the training has logged with MLflow. Lists have only those that `param` names.",
    )


class LearnerView(BaseModel):
    learner: int = Field(description="LEARNER_ID, from 1.")
    phase: str
    node: str | None = Field(description="The node that the learner runs or ran on, as the engine reports it.")
    address: str | None
    ports: list[int] = Field(default_factory=list, description="Ports of the address that the learner may use.")
    exit_code: int | None
    exit_reason: str | None
    lost: str | None = Field(
        default=None, description="Why the other learners of an elastic job went on without this learner."
    )
    leftovers: dict[str, Any] | None = Field(
        default=None,
        description="The files that the learner's program has left in the folder of the code: `named` (stored, as the "
        "manifest's `results` names them), `kept` (stored below `place`) and `lost` (not stored, with a reason), each "
        "with the number of files, their bytes and the largest. `line` would store all of them.",
    )


class RoundView(BaseModel):
    """The learners of an elastic job that train together now."""

    n: int
    learners: list[int] = Field(description="LEARNER_IDs in the order of ranks; empty while the learners gather.")
    processes: int = Field(description="Number of processes (WORLD_SIZE).")
    reason: str = Field(description="Why this round replaced the previous round.")
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
        default=None,
        description="The checkpoint that the attempt started from: generation, job, attempt, at (seconds), files, size "
        "(bytes).",
    )
    learners: list[LearnerView]
    round: RoundView | None = Field(default=None, description="The newest round of an elastic job.")


class PinView(BaseModel):
    """A package that the job has besides those of its image."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "transformers",
                    "version": "4.57.6",
                    "source": "",
                    "replaces": "",
                    "hashes": ["sha256:4c9e9de11333ddfe5114bc872c9f370509198acf0b87a832a0ab9458e2bd0550"],
                }
            ]
        }
    )

    name: str
    version: str
    source: str = Field(
        default="",
        description="The URL, the path in the code, or the SHA-256 of the job's own wheel. Empty: from an index.",
    )
    replaces: str = Field(default="", description="The image's version, if the image has another one.")
    hashes: list[str] = Field(
        default=[], description="SHA-256 of each file of this version that fits the image; no other file is installed."
    )


class PackagesView(BaseModel):
    """The packages that the job has besides those of its image."""

    state: str = Field(description="BUILDING, READY, FAILED, or DROPPED when they were removed after a month unused.")
    reason: str = Field(description="Why they can't be built.")
    build: str = Field(description="The job that builds or built them. It is not in lists, and is deleted after a day.")
    lock: list[PinView] | None = Field(description="All of them, with their versions; null until they are resolved.")
    sha256: str | None = Field(description="SHA-256 of their archive; null if the image has everything.")
    size: int | None = Field(description="Bytes of their archive.")


class AfterView(BaseModel):
    """A job that must end before this job starts."""

    model_config = ConfigDict(
        title="After",
        json_schema_extra={
            "examples": [{"job": "job-4k9x2m7qd1ze", "on": "completed", "state": "PROCESSING", "ended_at": None}]
        },
    )

    job: str
    on: str = Field(description="How it must end: `completed`, `failed` or `ended`.")
    state: str | None = Field(description="Its state; null: it was deleted.")
    ended_at: datetime | None = Field(description="Since when it counts as ended so; null: this job waits for it.")


class JobDetail(JobView):
    """A job with its attempts and its manifest. The manifest is in its canonical form, without credentials."""

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
                    "after": [],
                    "awaited_by": [],
                }
            ]
        },
    )

    attempts: list[AttemptView]
    manifest: dict[str, Any]
    notes: str = Field(default="", description="What the project's users have written down about the job.")
    pretrained_model: str | None = Field(description="The model version that the job starts from, by its number.")
    models: list[str] = Field(description="The model versions that hold the job's results.")
    after: list[AfterView] = Field(
        description="The jobs that must end before this job starts, in the manifest's order."
    )
    awaited_by: list[str] = Field(description="The jobs that wait for the end of this job: the oldest, 20 at most.")
    packages: PackagesView | None = Field(
        default=None, description="The packages that `framework.packages` and `framework.requirements` ask for."
    )
    tags: dict[str, str] = Field(
        default_factory=dict,
        description="Tags that the training has logged with MLflow.",
        examples=[{"team": "vision"}],
    )


class JobPage(BaseModel):
    jobs: list[JobView]
    next_cursor: str | None = Field(description="The `cursor` of the next page; null on the last page.")


Overrides = Annotated[
    dict[Annotated[str, Field(max_length=200)], Annotated[str, Field(max_length=10_000)]],
    Field(max_length=100, description="Values that replace the manifest's, by path.", examples=[{"learners": "2"}]),
]


class Keepalive(BaseModel):
    """Halts the job if its client goes away, that is, if PUT /jobs/{id}/keepalive has not come for ``seconds``."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"seconds": 45, "idle_seconds": 3600}]})

    seconds: int = Field(ge=5, le=86_400)
    idle_seconds: int | None = Field(
        default=None,
        ge=5,
        le=30 * 86_400,
        description="Also halt the job if no learner has printed a line or used 5 % of a CPU or GPU for this time.",
    )


class JobEnd(BaseModel):
    """Whether a job has ended, and how."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"ended": True, "state": "COMPLETED", "reason": "all learners succeeded"}]}
    )

    ended: bool = Field(description="Whether the state is COMPLETED, FAILED or HALTED.")
    state: JobState
    reason: str

    @classmethod
    def of(cls, state: str, reason: str) -> JobEnd:
        return cls(ended=state in TERMINAL, state=JobState(state), reason=reason)


class KeepaliveAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"until": "2026-01-31T08:15:47Z"}]})

    until: datetime | None = Field(
        description="When the job is halted unless its client calls again. Null if the job outlives its client."
    )


class SubmitBody(BaseModel):
    """A submission as JSON. The client uploads the code before (PUT /code/{sha256})."""

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


_Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]


class EditBody(BaseModel):
    """Fields that are not given stay as they are."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"labels": {"team": "vision", "old": None}, "notes": "Best run so far."}]},
    )

    labels: Annotated[dict[str, _Text | None], Field(max_length=128)] = Field(
        default_factory=dict,
        description="Labels that the job gets, as in the manifest's `labels`. null removes a label. Other labels stay.",
    )
    description: Annotated[_Text, Field(max_length=16384)] | None = Field(
        default=None, description="The description of the job and of its manifest."
    )
    notes: Annotated[_Text, Field(max_length=100_000)] | None = Field(
        default=None, description="What users want to remember about the job. Lists do not search in it."
    )
    pinned: StrictBool | None = Field(
        default=None, description="Whether the job is shown above the project's other jobs."
    )


class HaltBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"grace_seconds": 60}]})

    grace_seconds: int | None = Field(
        default=None,
        ge=0,
        le=86_400,
        description="Seconds from SIGTERM to SIGKILL. Default: the installation's setting.",
    )


class RerunBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"set": {"learners": "4"}, "from_checkpoint": True}]}
    )

    manifest: str | None = Field(
        default=None,
        description="A manifest that replaces the job's. GET /jobs/{id}/manifest returns the job's manifest to edit. "
        "A connection without credentials gets those of the job's data store with the same id and auth_url.",
    )
    code_sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="The SHA-256 of other code for the new job, uploaded before with PUT /code/{sha256}. Without it, "
        "the new job has the code of the old job.",
    )
    set: Overrides = Field(default_factory=dict)
    from_checkpoint: bool | Annotated[str, Field(min_length=1, max_length=64)] = Field(
        default=False,
        description="Start from a copy of a checkpoint of the job. `true` means the last complete checkpoint. A string "
        "is the `generation` of a checkpoint that GET /jobs/{id}/checkpoints lists.",
    )


class ValidManifest(BaseModel):
    """A manifest in its canonical form, with everything resolved."""

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
    notes: list[str] = Field(description="Remarks that are not errors.")
