"""Engines and the catalogue on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from weft_core.launch import Resources

_ENGINE: dict[str, Any] = {
    "name": "gpu-cluster",
    "type": "kubernetes",
    "default": True,
    "health": "up",
    "condition": None,
    "capacity": {"cpus": 64, "gpus": 8, "memory": 549_755_813_888},
    "used": {"cpus": 16, "gpus": 4, "memory": 137_438_953_472},
    "busy": {"cpus": 2.5, "gpus": 0, "memory": 8_589_934_592},
    "free": {"cpus": 45.5, "gpus": 4, "memory": 403_726_925_824},
    "queue": "",
    "exposed": "",
    "shared_network": "",
    "node_counts": {"ready": 2, "not_ready": 0, "potential": 4},
    "seen_at": "2026-01-31T08:21:44Z",
    "unreachable_since": None,
    "error": None,
    "queued": 2,
    "running": 2,
}


class Amounts(BaseModel):
    cpus: float = 0
    gpus: int = 0
    memory: int = Field(default=0, description="Memory in bytes.")


class NodeCounts(BaseModel):
    ready: int = Field(description="Nodes that take learners.")
    not_ready: int = Field(description="Nodes that are down, cordoned or under pressure. They take no learners now.")
    potential: int = Field(description="Nodes that the cluster's autoscaler may add.")


class EngineView(BaseModel):
    model_config = ConfigDict(title="Engine", json_schema_extra={"examples": [_ENGINE]})

    name: str
    type: str
    default: bool
    health: Literal["up", "unreachable", "unseen"] = Field(
        description="`unseen`: no worker has observed the engine lately, or at all."
    )
    condition: str | None = Field(description="A description of the engine's problem. Null if there is none.")
    capacity: Amounts | None = Field(
        description="Resources of the ready nodes. Null until a worker has observed the engine."
    )
    used: Amounts = Field(description="Resources that the open attempts of all projects hold.")
    busy: Amounts | None = Field(
        description="Resources of the ready nodes that programs outside this installation use."
    )
    free: Amounts | None = Field(description="Resources of the ready nodes that are neither used nor busy.")
    queue: str = Field(
        description="The queue that admits jobs in place of Weft, such as a queue of Kueue. Empty if Weft admits them."
    )
    exposed: str = Field(
        description="The reason why the engine does not keep jobs of different projects apart. Empty if it does."
    )
    shared_network: str = Field(
        description="The reason why jobs, which the engine keeps apart otherwise, share a network. "
        "Empty if they do not."
    )
    node_counts: NodeCounts
    seen_at: datetime | None
    unreachable_since: datetime | None
    error: str | None
    queued: int = Field(description="Jobs of all projects that wait for the engine.")
    running: int = Field(description="Open attempts of all projects on the engine.")


class NodeView(BaseModel):
    model_config = ConfigDict(title="Node")

    name: str
    state: Literal["ready", "not ready", "potential"] = Field(
        description="`potential`: the node does not exist yet, but the cluster's autoscaler may add it."
    )
    gpu_type: str | None
    capacity: Amounts
    used: Amounts = Field(description="Resources of the node that open attempts hold.")
    busy: Amounts = Field(description="Resources of the node that programs outside this installation use.")
    extra: dict[str, float] = Field(description="Other resources of the node, by the engine's names.")
    taints: list[str]
    blames: int = Field(
        description="How many jobs blame the node: learners vanished from it, or a gang waited for a rank on it."
    )
    excluded: bool = Field(description="Whether the node gets no learners because of that.")


class WaitingJob(BaseModel):
    model_config = ConfigDict(title="WaitingJob")

    id: str
    name: str
    state: Literal["QUEUED", "PENDING"] = Field(
        description="`PENDING`: the job is admitted, and the engine is starting its learners."
    )
    place: int | None = Field(
        description="Position in the engine's queue, which counts other projects' jobs, too. Null for PENDING."
    )
    priority: int
    learners: int
    resources: Resources
    reason: str
    condition: str | None
    state_since: datetime


class RunningAttempt(BaseModel):
    model_config = ConfigDict(title="RunningAttempt")

    job: str = Field(description="The job's id.")
    name: str
    user: str
    state: str = Field(description="The state of the job.")
    attempt: int
    learners: int
    cpus: float = Field(description="CPUs that all learners together hold.")
    gpus: int = Field(description="GPUs that all learners together hold.")
    nodes: list[str] = Field(description="Nodes of the learners, as the engine reports them.")
    since: datetime = Field(description="When the attempt was admitted.")
    idle_since: datetime | None = Field(
        description="Since when no learner has used a CPU or GPU or has printed a line. Null if a learner works."
    )


_DETAIL: dict[str, Any] = {
    **_ENGINE,
    "nodes": [
        {
            "name": "gpu-1",
            "state": "ready",
            "gpu_type": "NVIDIA-A100-SXM4-80GB",
            "capacity": {"cpus": 32, "gpus": 4, "memory": 274_877_906_944},
            "used": {"cpus": 16, "gpus": 4, "memory": 137_438_953_472},
            "busy": {"cpus": 1, "gpus": 0, "memory": 4_294_967_296},
            "extra": {},
            "taints": ["nvidia.com/gpu"],
        }
    ],
    "waiting": [
        {
            "id": "job-4k9x2m7qd1ze",
            "name": "mnist-horovod",
            "state": "QUEUED",
            "place": 2,
            "priority": 50,
            "learners": 2,
            "resources": {
                "cpus": 8,
                "gpus": 4,
                "memory": 68_719_476_736,
                "storage": None,
                "gpu_type": "a100",
                "extra": {},
            },
            "reason": "waiting for 8 GPUs of type a100: 4 of 8 free; queued behind 1 job",
            "condition": None,
            "state_since": "2026-01-31T08:15:02Z",
        }
    ],
    "waiting_of_others": 1,
    "attempts": [
        {
            "job": "job-4k9x2m7qd1zf",
            "name": "resnet50",
            "user": "ada",
            "state": "PROCESSING",
            "attempt": 1,
            "learners": 2,
            "cpus": 16,
            "gpus": 4,
            "nodes": ["gpu-1"],
            "since": "2026-01-31T07:15:02Z",
            "idle_since": None,
        }
    ],
}


class EngineDetail(EngineView):
    """An engine with its nodes and waiting jobs."""

    model_config = ConfigDict(title="EngineDetail", json_schema_extra={"examples": [_DETAIL]})

    nodes: list[NodeView]
    waiting: list[WaitingJob] = Field(
        description="Waiting jobs of the project, in the order of the queue; at most 100."
    )
    waiting_of_others: int = Field(description="Number of queued jobs of other projects.")
    attempts: list[RunningAttempt] = Field(
        description="Open attempts of the project, the oldest first; at most 100. `running` counts all projects'."
    )


class UsePoint(BaseModel):
    at: datetime = Field(description="The end of the part of the time.")
    cpus: float = Field(description="CPUs that attempts of all projects held, on average.")
    gpus: float


class EngineUse(BaseModel):
    name: str
    points: list[UsePoint] = Field(description="96 equal parts of the time, in order.")


class PersonUse(BaseModel):
    project: str
    user: str
    attempts: int
    cpu_hours: float = Field(description="CPUs held × hours.")
    gpu_hours: float = Field(description="GPUs held × hours.")


class UsageView(BaseModel):
    model_config = ConfigDict(
        title="Usage",
        json_schema_extra={
            "examples": [
                {
                    "since": "2026-01-30T08:00:00Z",
                    "until": "2026-01-31T08:00:00Z",
                    "engines": [
                        {"name": "local", "points": [{"at": "2026-01-30T08:15:00Z", "cpus": 12.5, "gpus": 2.0}]}
                    ],
                    "people": [
                        {"project": "default", "user": "ada", "attempts": 12, "cpu_hours": 96.5, "gpu_hours": 24.0}
                    ],
                }
            ]
        },
    )

    since: datetime
    until: datetime
    engines: list[EngineUse] = Field(description="Engines on which an attempt has held resources.")
    people: list[PersonUse] = Field(description="Users whose attempts have held resources, the largest use first.")


class RoomView(BaseModel):
    """The number of learners of one size for which an engine has room. Null until a worker has observed the engine."""

    model_config = ConfigDict(
        title="Room", json_schema_extra={"examples": [{"now": 1, "empty": 4, "potential": 0, "tainted": 2}]}
    )

    now: int | None = Field(
        description="Learners that fit now beside all that runs, on nodes that are ready and have no taints."
    )
    empty: int | None = Field(description="Learners that fit on nodes without taints when nothing else runs.")
    potential: int | None = Field(description="Learners that fit on nodes that the cluster's autoscaler may add.")
    tainted: int | None = Field(
        description="Learners that fit, when nothing else runs, on nodes whose taints only a profile may tolerate."
    )


class EngineList(BaseModel):
    engines: list[EngineView]


class ImageView(BaseModel):
    model_config = ConfigDict(title="Image")

    reference: str
    name: str
    version: str
    digest: str = Field(description="Digest of everything that the catalogue locks for the image.")
    frameworks: list[str]
    devices: list[Literal["cpu", "gpu"]] = Field(description="Devices that the image can be built for.")
    aliases: list[str] = Field(description="Other versions (FRAMEWORK:VERSION) for which manifests get this image.")
    engines: dict[str, Literal["ready", "on demand", "unknown"]] = Field(
        description="Whether each engine has the image. `on demand`: the engine builds or pulls it for the first job "
        "that needs it. `unknown`: the engine cannot tell."
    )
    launchers: list[str]
    default_launcher: str


class CatalogueView(BaseModel):
    model_config = ConfigDict(
        title="Catalogue",
        json_schema_extra={
            "examples": [
                {
                    "images": [
                        {
                            "reference": "horovod:0.28.1-torch2.13",
                            "name": "horovod",
                            "version": "0.28.1-torch2.13",
                            "digest": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                            "frameworks": ["horovod"],
                            "devices": ["cpu", "gpu"],
                            "aliases": ["horovod:0.28.1", "horovod:latest"],
                            "engines": {"local": "ready", "gpu-cluster": "on demand"},
                            "launchers": ["horovod", "none"],
                            "default_launcher": "horovod",
                        }
                    ],
                    "aliases": {"tensorflow:1.5.0-py3": "tensorflow:2.21.0"},
                }
            ]
        },
    )

    images: list[ImageView]
    aliases: dict[str, str] = Field(description="Versions that manifests may name, and the images that serve them.")


class BlameView(BaseModel):
    """A row of the ledger of blamed nodes."""

    model_config = ConfigDict(
        title="Blame",
        json_schema_extra={
            "examples": [
                {
                    "node": "gpu-7",
                    "job": "job-vqdqtpeyg1t1",
                    "project": "proj-4exhsvx18wgd",
                    "attempt": 1,
                    "reason": "learner 2 vanished",
                    "created_at": "2026-01-31T08:15:00Z",
                    "forgiven_at": None,
                }
            ]
        },
    )

    node: str
    job: str
    project: str = Field(description="The id of the job's project.")
    attempt: int
    reason: str
    created_at: datetime
    forgiven_at: datetime | None = Field(description="From then on, it does not count.")


class BlameList(BaseModel):
    blames: list[BlameView]


class Forgiven(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"forgiven": 3}]})

    forgiven: int = Field(description="How many rows of the ledger count no more.")
