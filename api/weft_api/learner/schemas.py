"""The learner's API on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from weft_api.access.learner_calls import LearnerCall, Storable, call_examples
from weft_api.http.problems import ProblemBody
from weft_api.logs.schemas import LogBatch
from weft_api.metrics.schemas import RECORD, MetricRecords
from weft_core.hangs.report import Report

_HEARTBEAT: dict[str, Any] = {
    "system": {"cpu_percent": 97.5, "memory_bytes": 734003200, "gpus": []},
    "idle_seconds": 0,
    "still_seconds": 2.5,
    "pause_seconds": 34,
    "wrote": True,
    "saved_seconds": 41.5,
}


class StartCall(LearnerCall):
    model_config = call_examples(hostname="node-3")

    hostname: Annotated[Storable, Field(max_length=255)] = ""


class StoreKeysCall(LearnerCall):
    model_config = call_examples()


class IdentityTokenCall(LearnerCall):
    model_config = call_examples()


_Address = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[0-9A-Za-z.:_%-]+$")]
_Ports = Annotated[list[Annotated[int, Field(ge=1, le=65535)]], Field(max_length=64)]


class AddressCall(LearnerCall):
    model_config = call_examples(address="10.0.0.7", ports=[40001, 40002, 40003, 40004])

    address: _Address
    ports: _Ports


class Listing(BaseModel):
    """A summary of listed objects: their number, their bytes, and a SHA-256 of their keys and sizes. For inputs, the
    SHA-256 includes their ETags."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "files": 4,
                    "bytes": 545112,
                    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                }
            ]
        },
    )

    files: int = Field(ge=0, le=2**53)
    bytes: int = Field(ge=0, le=2**62)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Inputs(BaseModel):
    """The inputs that a learner found in the places that the manifest names."""

    data: Listing | None = None
    pretrained: Listing | None = None


class Origin(BaseModel):
    """A checkpoint: a generation that learners have stored."""

    generation: Annotated[Storable, Field(max_length=100)]
    job: Annotated[Storable, Field(max_length=100)] | None = None
    attempt: int | None = None
    at: float | None = Field(default=None, ge=0, le=1e11, description="Seconds since the epoch.")
    files: int = Field(ge=0)
    size: int = Field(ge=0, description="Size in bytes.")


class Kept(BaseModel):
    """A command that has failed, and whose learner stays for a look inside."""

    exit_code: int = Field(ge=1, le=255)
    reason: Annotated[Storable, Field(max_length=2000)] = ""
    last_lines: list[Annotated[Storable, Field(max_length=20_000)]] = Field(default_factory=list, max_length=200)
    seconds: float = Field(gt=0, le=86400, description="How long it stays.")


class PhaseCall(LearnerCall):
    model_config = call_examples(phase="DOWNLOADING", message="")

    phase: Literal["DOWNLOADING", "PROCESSING"]
    message: Annotated[Storable, Field(max_length=2000)] = ""
    inputs: Inputs | None = Field(
        default=None, description="Learner 1 sends its inputs with PROCESSING. The server keeps them as lineage."
    )
    checkpoint: Origin | None = Field(default=None, description="The checkpoint that the learner starts from.")
    address: _Address | None = Field(
        default=None, description="Where the learner's program listens, of a learner that has sent no address before."
    )
    ports: _Ports | None = None
    kept: Kept | None = Field(
        default=None, description="The learner's command has failed, and the learner stays for a look inside."
    )


class Heartbeat(BaseModel):
    """A heartbeat's data about a learner."""

    system: dict[str, Any] | None = Field(default=None, description="The learner's use of CPU, memory and GPUs.")
    idle_seconds: float | None = Field(
        default=None,
        ge=0,
        le=3e9,
        description="For how long the learner has logged nothing and hardly used its CPUs and GPUs. Null if its "
        "program does not run.",
    )
    still_seconds: float | None = Field(
        default=None,
        ge=0,
        le=3e9,
        description="For how long the program has shown no step: no line in the log, no metric, and nothing written to "
        "a disk. Null if it does not run.",
    )
    pause_seconds: float | None = Field(
        default=None, ge=0, le=3e9, description="The longest time between two such signs of a step."
    )
    wrote: bool | None = Field(
        default=None, description="Whether the program has written into its folder, RESULT_DIR or CHECKPOINT_DIR."
    )
    saved_seconds: float | None = Field(
        default=None,
        ge=0,
        le=3e9,
        description="How long ago CHECKPOINT_DIR was in the state that is stored. Null if the learner has stored "
        "nothing.",
    )


class HeartbeatCall(LearnerCall, Heartbeat):
    model_config = call_examples(**_HEARTBEAT)


class ReportCall(LearnerCall):
    """All that an agent has for the server. Each part is optional."""

    model_config = call_examples(
        heartbeat=_HEARTBEAT,
        logs={"sequence": 0, "lines": [{"t": 1769847309018, "s": "epoch 1: loss 0.412"}]},
        metrics={"sequence": 0, "records": [RECORD]},
    )

    heartbeat: Heartbeat | None = None
    logs: LogBatch | None = None
    metrics: MetricRecords | None = None


class StacksCall(LearnerCall):
    model_config = call_examples(request="2026-01-31T08:15:00+00:00", report={"processes": []})

    request: Annotated[Storable, Field(max_length=64)] = Field(
        description="The value of `dump` or `look` in the heartbeat's answer that asked for the stacks."
    )
    report: Report


class ProfileCall(LearnerCall):
    model_config = call_examples(
        profile="20260131-081500-4f2a", text="PyTorch's profiler records 10 steps of rank-0, rank-1"
    )

    profile: Annotated[str, Field(pattern=r"^\d{8}-\d{6}-[0-9a-f]{4}$")] = Field(description="The profile's id.")
    text: Annotated[Storable, Field(max_length=2000)] = Field(description="How the recording goes.")


class StoringCall(LearnerCall):
    model_config = call_examples(exit_code=0)

    exit_code: int = Field(ge=-1000, le=1000)


class ObjectsCall(LearnerCall):
    model_config = call_examples(space="results", op="put", keys=["model.pt"])

    space: Literal["results", "checkpoints", "shared", "profiles", "pretrained", "exit"]
    op: Literal["put", "get", "list", "delete", "begin", "parts", "complete", "abort"] = Field(
        description="`begin`, `parts`, `complete` and `abort` belong to a multipart upload of a single key."
    )
    keys: list[Annotated[str, Field(max_length=900)]] = Field(
        default_factory=list,
        max_length=1000,
        description="Relative paths. With `list`, they are prefixes, and an empty list means all objects.",
    )
    upload: str | None = Field(
        default=None,
        max_length=2000,
        pattern=r"^[\x21-\x7e]+$",
        description="The upload's id, from the answer to `begin`.",
    )
    numbers: list[Annotated[int, Field(ge=1, le=10_000)]] = Field(
        default_factory=list, max_length=1000, description="With `parts`: the numbers of the parts to PUT, from 1."
    )
    etags: list[Annotated[str, Field(max_length=200, pattern=r"^[\x20-\x7e]+$")]] = Field(
        default_factory=list, max_length=10_000, description="With `complete`: the ETags of all parts, in order."
    )


class LeftGroup(BaseModel):
    """A file of the job's folder, or a folder there (its path ends with a slash)."""

    path: Annotated[Storable, Field(max_length=300)]
    files: int = Field(ge=0, le=2**53)
    bytes: int = Field(ge=0, le=2**62)


class LeftFiles(BaseModel):
    """Files of the job's folder: how many, and the largest."""

    files: int = Field(ge=0, le=2**53)
    bytes: int = Field(ge=0, le=2**62)
    listed: list[LeftGroup] = Field(default_factory=list, max_length=20)


class LostFiles(LeftFiles):
    reason: Annotated[Storable, Field(max_length=2000)] = Field(description="Why these files are not kept.")


class Leftovers(BaseModel):
    """The files that the program has left in the job's folder."""

    place: Annotated[Storable, Field(max_length=100)] = Field(description="The folder of the results for `kept`.")
    line: Annotated[Storable, Field(max_length=70_000)] = Field(
        description="The line of the manifest that would store all of them."
    )
    named: LeftFiles = Field(description="Stored, as the manifest's `results` names them.")
    kept: LeftFiles = Field(description="Stored, although the manifest does not name them.")
    lost: list[LostFiles] = Field(max_length=20, description="Not stored.")
    unmatched: list[Annotated[Storable, Field(max_length=1000)]] = Field(
        default_factory=list, max_length=100, description="Patterns of `results` that match no file."
    )


class ExitCall(LearnerCall):
    model_config = call_examples(exit_code=3, reason="exit code 3", last_lines=["RuntimeError: no such device"])

    exit_code: int = Field(ge=-1000, le=1000)
    reason: Annotated[Storable, Field(max_length=10_000)] = ""
    last_lines: list[Annotated[Storable, Field(max_length=20_000)]] = Field(default_factory=list, max_length=200)
    outputs: Listing | None = Field(default=None, description="The results. The learner that stores last sends them.")
    leftovers: Leftovers | None = Field(
        default=None, description="What the program has left in the job's folder; absent if it has left nothing."
    )


class Peer(BaseModel):
    rank: int
    address: str | None
    ports: list[int]
    phase: str


class Peers(BaseModel):
    """The learners of a gang. ``ready`` means that all have an address and have reached the phase that the call
    names."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"ready": True, "peers": [{"rank": 0, "address": "10.0.0.7", "ports": [40001], "phase": "STARTED"}]}
            ]
        }
    )

    ready: bool
    peers: list[Peer]


class RoundCall(LearnerCall):
    """The state of a learner of an elastic job. ``ready``: it waits for a round after ``round``. ``running``: its
    workers run in ``round``, and it waits for the next round. ``broken``: its workers have ended early. A learner
    reports this at once, and becomes ``ready`` when it has cleaned up after them."""

    model_config = call_examples(state="ready", round=0, address="10.0.0.7", ports=[40001, 40002, 40003, 40004])

    state: Literal["ready", "broken", "running"]
    round: int = Field(ge=0, le=2**31 - 1, description="The last round that the learner was in; 0 before its first.")
    address: _Address | None = None
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(default_factory=list, max_length=64)
    exit_code: int | None = Field(default=None, ge=-1000, le=1000)
    reason: Annotated[Storable, Field(max_length=10_000)] = ""
    last_lines: list[Annotated[Storable, Field(max_length=20_000)]] = Field(default_factory=list, max_length=200)
    wait: float = Field(default=0, ge=0, le=30, description="Seconds to wait for a change.")


class RoundAnswer(BaseModel):
    """The order to a learner of an elastic job. ``wait``: nothing has changed. ``change``: round ``round`` has opened;
    get ready for it, and end the workers first if ``restart`` is true. ``run``: train in round ``round`` with
    ``peers``, which are in the order of their ranks. ``finish``: the training has ended well. ``leave``: the other
    learners go on without this learner, for the given reason."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "verdict": "run",
                    "round": 2,
                    "restart": True,
                    "reason": "learner 2 was lost (killed by signal 9 (SIGKILL))",
                    "peers": [{"rank": 0, "address": "10.0.0.7", "ports": [40001, 40002], "phase": "PROCESSING"}],
                }
            ]
        }
    )

    verdict: Literal["wait", "change", "run", "finish", "leave"]
    round: int = 0
    restart: bool = True
    reason: str = ""
    peers: list[Peer] = Field(default_factory=list)


class TunnelCall(BaseModel):
    """Somebody asks for a tunnel: open a WebSocket at `/api/v1/learner/tunnels/{id}?rank=`."""

    id: str
    kind: str = Field(description="exec, shell, get, put, forward or profile; the agent allows only that through it.")


class HeartbeatAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"stop": True, "grace_seconds": 120, "dump": None, "look": None, "tunnels": []}]
        }
    )

    stop: bool
    grace_seconds: int | None = Field(description="Seconds from SIGTERM to SIGKILL, if `stop` is true.")
    dump: str | None = Field(
        default=None, description="Write the stacks of all processes into the log, once for each new value."
    )
    look: str | None = Field(
        default=None,
        description="Look at all processes several times, and report whether they stand still, once for each value.",
    )
    tunnels: list[TunnelCall] = []


class ReportAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "heartbeat": {"stop": False, "grace_seconds": None, "dump": None, "tunnels": []},
                    "refused": {
                        "logs": {
                            "type": "urn:weft:problem:too_many_lines",
                            "title": "The job logs too fast",
                            "status": 429,
                            "detail": "it may log 10000 lines and 2097152 bytes a second",
                            "code": "too_many_lines",
                        }
                    },
                }
            ]
        }
    )

    heartbeat: HeartbeatAnswer | None = Field(
        default=None, description="The answer to the report's heartbeat; null if the report has none."
    )
    pause: float = Field(
        default=0,
        ge=0,
        description="Seconds that the learner should wait before its next report, unless its program has ended. More "
        "than 0 while the server is busy.",
    )
    refused: dict[Literal["heartbeat", "logs", "metrics"], ProblemBody] = Field(
        default_factory=dict,
        description="The parts that the server has not taken in, and why. It has taken in all others. `status` means "
        "what it means as the status of the call with this part alone.",
    )


class StoringAnswer(BaseModel):
    """The answer about the storing grant. ``granted``: store the results now. ``wait``: ask again soon."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"granted": False, "wait": True}]})

    granted: bool
    wait: bool


class ObjectEntry(BaseModel):
    key: str
    size: int


class ObjectsAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"urls": {"model.pt": "https://…"}, "objects": None},
                {"urls": None, "objects": [{"key": "model.pt", "size": 4711004}]},
            ]
        }
    )

    urls: dict[str, str] | None = Field(
        default=None, description="Presigned URLs by key, or by the number of the part."
    )
    objects: list[ObjectEntry] | None = None
    upload: str | None = Field(default=None, description="The id of a multipart upload.")


QueryRank = Annotated[int, Query(ge=0, le=100_000, description="Rank of the learner that asks.", examples=[0])]
QueryPhase = Annotated[
    Literal["STARTED", "DOWNLOADING", "PROCESSING", "STORING", "EXITED"] | None,
    Query(description="Wait until all learners have reached this phase."),
]
