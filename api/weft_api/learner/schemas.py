"""The learner's API on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from weft_api.access.learner_calls import LearnerCall, Storable, call_examples


class StartCall(LearnerCall):
    model_config = call_examples(hostname="node-3")

    hostname: Annotated[Storable, Field(max_length=255)] = ""


class AddressCall(LearnerCall):
    model_config = call_examples(address="10.0.0.7", ports=[40001, 40002, 40003, 40004])

    address: str = Field(min_length=1, max_length=255, pattern=r"^[0-9A-Za-z.:_%-]+$")
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(max_length=64)


class Listing(BaseModel):
    """Objects, as they were listed: how many, their bytes, and a SHA-256 of keys, sizes and (of inputs) ETags."""

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
    """What a learner found where the manifest's inputs are."""

    data: Listing | None = None
    pretrained: Listing | None = None


class Origin(BaseModel):
    """A checkpoint: one of the generations that learners store."""

    generation: Annotated[Storable, Field(max_length=100)]
    job: Annotated[Storable, Field(max_length=100)] | None = None
    attempt: int | None = None
    at: float | None = Field(default=None, ge=0, le=1e11, description="Seconds since the epoch.")
    files: int = Field(ge=0)
    size: int = Field(ge=0, description="Bytes.")


class PhaseCall(LearnerCall):
    model_config = call_examples(phase="DOWNLOADING", message="")

    phase: Literal["DOWNLOADING", "PROCESSING"]
    message: Annotated[Storable, Field(max_length=2000)] = ""
    inputs: Inputs | None = Field(default=None, description="With PROCESSING, of learner 1: kept as lineage.")
    checkpoint: Origin | None = Field(default=None, description="What the learner begins with.")


class HeartbeatCall(LearnerCall):
    model_config = call_examples(
        system={"cpu_percent": 97.5, "memory_bytes": 734003200, "gpus": []}, idle_seconds=0, wrote=True
    )

    system: dict[str, Any] | None = Field(default=None, description="CPU, memory and GPUs of the learner.")
    idle_seconds: float | None = Field(
        default=None,
        ge=0,
        le=3e9,
        description="For how long it has logged nothing and hardly used CPU and GPU; null: its program does not run.",
    )
    wrote: bool | None = Field(default=None, description="Whether it has written into RESULT_DIR or CHECKPOINT_DIR.")


class StoringCall(LearnerCall):
    model_config = call_examples(exit_code=0)

    exit_code: int = Field(ge=-1000, le=1000)


class ObjectsCall(LearnerCall):
    model_config = call_examples(space="results", op="put", keys=["model.pt"])

    space: Literal["results", "checkpoints", "pretrained", "exit"]
    op: Literal["put", "get", "list", "delete", "begin", "parts", "complete", "abort"] = Field(
        description="The last four are of a multipart upload of the one key."
    )
    keys: list[Annotated[str, Field(max_length=900)]] = Field(
        default_factory=list, max_length=1000, description="Relative paths; with op list: prefixes (none: all)."
    )
    upload: str | None = Field(
        default=None, max_length=2000, pattern=r"^[\x21-\x7e]+$", description="What op begin has answered."
    )
    numbers: list[Annotated[int, Field(ge=1, le=10_000)]] = Field(
        default_factory=list, max_length=1000, description="With op parts: which of them are to be put, from 1."
    )
    etags: list[Annotated[str, Field(max_length=200, pattern=r"^[\x20-\x7e]+$")]] = Field(
        default_factory=list, max_length=10_000, description="With op complete: of all parts, in order."
    )


class ExitCall(LearnerCall):
    model_config = call_examples(exit_code=3, reason="exit code 3", last_lines=["RuntimeError: no such device"])

    exit_code: int = Field(ge=-1000, le=1000)
    reason: Annotated[Storable, Field(max_length=10_000)] = ""
    last_lines: list[Annotated[Storable, Field(max_length=20_000)]] = Field(default_factory=list, max_length=200)
    outputs: Listing | None = Field(default=None, description="The results, of the learner that stores last.")


class Peer(BaseModel):
    rank: int
    address: str | None
    ports: list[int]
    phase: str


class Peers(BaseModel):
    """``ready``: all learners have an address, and are at or past the phase that was asked for."""

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
    """``ready``: it waits for a round after ``round``. ``running``: its workers run in ``round``, and it wants to hear
    of the next. ``broken``: its workers have ended early, which it says at once; it is ``ready`` when it has put away
    what they had."""

    model_config = call_examples(state="ready", round=0, address="10.0.0.7", ports=[40001, 40002, 40003, 40004])

    state: Literal["ready", "broken", "running"]
    round: int = Field(ge=0, le=2**31 - 1, description="The last round that it was in; 0: none yet.")
    address: str | None = Field(default=None, min_length=1, max_length=255, pattern=r"^[0-9A-Za-z.:_%-]+$")
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(default_factory=list, max_length=64)
    exit_code: int | None = Field(default=None, ge=-1000, le=1000)
    reason: Annotated[Storable, Field(max_length=10_000)] = ""
    last_lines: list[Annotated[Storable, Field(max_length=20_000)]] = Field(default_factory=list, max_length=200)
    wait: float = Field(default=0, ge=0, le=30, description="Seconds to wait for news.")


class RoundAnswer(BaseModel):
    """``wait``: no news. ``change``: round ``round`` has opened: arrive for it, with workers ended if ``restart``.
    ``run``: train in round ``round``, with ``peers`` in order of rank. ``finish``: training has ended well. ``leave``:
    the others go on without this learner, for the reason that is given."""

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


class HeartbeatAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"stop": True, "grace_seconds": 120, "dump": None}]})

    stop: bool
    grace_seconds: int | None = Field(description="From SIGTERM to SIGKILL, when `stop` is set.")
    dump: str | None = Field(
        default=None, description="Write the stacks of all processes into the log, once for each value that comes."
    )


class StoringAnswer(BaseModel):
    """``granted``: store the results now. ``wait``: ask again soon."""

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

    urls: dict[str, str] | None = Field(default=None, description="Presigned, by key, or by number of the part.")
    objects: list[ObjectEntry] | None = None
    upload: str | None = Field(default=None, description="The id of a multipart upload.")


QueryRank = Annotated[int, Query(ge=0, le=100_000, description="The asking learner's rank.", examples=[0])]
QueryPhase = Annotated[
    Literal["STARTED", "DOWNLOADING", "PROCESSING", "STORING", "EXITED"] | None,
    Query(description="Wait until all are at or past this phase."),
]
