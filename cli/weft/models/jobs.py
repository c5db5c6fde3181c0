"""Jobs, their attempts, learners, events and files."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from weft.models.base import Json, ServerValue, parse_time


@dataclass(frozen=True)
class Framework:
    """``version`` is the image catalogue's, ``launcher`` is what starts the processes (never ``auto``)."""

    name: str
    version: str
    launcher: str
    command: str


@dataclass(frozen=True)
class LearnerStatus(ServerValue):
    """A learner of an attempt. ``learner`` counts from 1, as ``LEARNER_ID`` does."""

    learner: int
    phase: str
    node: str | None = None
    address: str | None = None
    ports: tuple[int, ...] = ()
    exit_code: int | None = None
    exit_reason: str | None = None
    lost: str | None = None
    """Why the others went on without it, in an elastic job."""
    leftovers: Json | None = None
    """The files that its program has left in the folder of the code: ``named``, ``kept`` and ``lost``, each with
    ``files``, ``bytes`` and the largest (``listed``); ``place`` and ``line``."""

    @classmethod
    def from_json(cls, data: Json) -> LearnerStatus:
        return cls(
            learner=int(data["learner"]),
            phase=str(data.get("phase") or ""),
            node=data.get("node"),
            address=data.get("address"),
            ports=tuple(int(port) for port in data.get("ports") or ()),
            exit_code=data.get("exit_code"),
            exit_reason=data.get("exit_reason"),
            lost=data.get("lost"),
            leftovers=data.get("leftovers"),
            raw=data,
        )


@dataclass(frozen=True)
class Round(ServerValue):
    """The learners of an elastic job that train together now."""

    n: int
    learners: tuple[int, ...]
    """LEARNER_IDs in the order of ranks; empty while the learners gather."""
    processes: int
    reason: str = ""

    @classmethod
    def from_json(cls, data: Json) -> Round:
        learners = tuple(int(learner) for learner in data.get("learners") or ())
        return cls(int(data["n"]), learners, int(data.get("processes") or 0), str(data.get("reason") or ""), raw=data)


@dataclass(frozen=True)
class Attempt(ServerValue):
    """A try of a job; ``n`` counts from 1. ``outcome`` is None while the attempt lasts."""

    n: int
    outcome: str | None
    reason: str
    exit_code: int | None
    created_at: datetime | None
    ended_at: datetime | None
    learners: tuple[LearnerStatus, ...] = ()
    round: Round | None = None
    """The newest, of an elastic job."""
    checkpoint: Json | None = None
    """The checkpoint that it began with: ``generation``, ``job``, ``attempt``, ``at`` (seconds since the epoch),
    ``files``, ``size`` (bytes)."""

    @classmethod
    def from_json(cls, data: Json) -> Attempt:
        return cls(
            n=int(data["n"]),
            outcome=data.get("outcome"),
            reason=str(data.get("reason") or ""),
            exit_code=data.get("exit_code"),
            created_at=parse_time(data.get("created_at")),
            ended_at=parse_time(data.get("ended_at")),
            learners=tuple(LearnerStatus.from_json(learner) for learner in data.get("learners") or ()),
            round=Round.from_json(data["round"]) if data.get("round") else None,
            checkpoint=data.get("checkpoint"),
            raw=data,
        )


@dataclass(frozen=True)
class Checkpoint(ServerValue):
    """A complete state of a learner's CHECKPOINT_DIR. ``learner`` counts from 1; ``job`` is the one whose learner
    stored it; ``size`` in bytes."""

    generation: str
    learner: int
    job: str | None = None
    attempt: int | None = None
    at: datetime | None = None
    files: int = 0
    size: int = 0

    @classmethod
    def from_json(cls, data: Json) -> Checkpoint:
        return cls(
            generation=str(data["generation"]),
            learner=int(data.get("learner") or 1),
            job=data.get("job"),
            attempt=data.get("attempt"),
            at=parse_time(data.get("at")),
            files=int(data.get("files") or 0),
            size=int(data.get("size") or 0),
            raw=data,
        )


@dataclass(frozen=True)
class Delivery(ServerValue):
    """A notification of one event of a job to one target of its manifest. ``event`` is the state that the job has
    entered, or ``rule``; ``state`` is ``waiting``, ``delivered`` or ``failed``."""

    id: str
    event_id: str
    event: str
    message: str
    target: str
    format: str
    state: str
    tries: int = 0
    status: str | None = None
    """The result of the last try."""
    queued_at: datetime | None = None
    tried_at: datetime | None = None
    delivered_at: datetime | None = None
    next_try_at: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> Delivery:
        return cls(
            id=str(data["id"]),
            event_id=str(data.get("event_id") or ""),
            event=str(data.get("event") or ""),
            message=str(data.get("message") or ""),
            target=str(data.get("target") or ""),
            format=str(data.get("format") or ""),
            state=str(data.get("state") or ""),
            tries=int(data.get("tries") or 0),
            status=data.get("status"),
            queued_at=parse_time(data.get("queued_at")),
            tried_at=parse_time(data.get("tried_at")),
            delivered_at=parse_time(data.get("delivered_at")),
            next_try_at=parse_time(data.get("next_try_at")),
            raw=data,
        )


@dataclass(frozen=True)
class Event(ServerValue):
    """Something that happened to a job. ``state`` is set for kind ``state``: the state entered."""

    id: int
    at: datetime | None
    kind: str
    message: str
    state: str | None = None
    attempt: int | None = None
    data: Json = field(default_factory=dict)
    user: str | None = None

    @property
    def text(self) -> str:
        """The message, with the user who caused the event, if anybody did."""
        return f"{self.message} (by {self.user})" if self.user else self.message

    @classmethod
    def from_json(cls, data: Json) -> Event:
        return cls(
            id=int(data["id"]),
            at=parse_time(data.get("at")),
            kind=str(data.get("kind") or ""),
            message=str(data.get("message") or ""),
            state=data.get("state"),
            attempt=data.get("attempt"),
            data=data.get("data") or {},
            user=data.get("user"),
            raw=data,
        )


@dataclass(frozen=True)
class StateChange:
    """Says in a followed log that the job has entered ``state``; ``final`` ends the log."""

    state: str
    reason: str = ""
    final: bool = False


@dataclass(frozen=True)
class FileInfo(ServerValue):
    """A file among a job's results; ``size`` in bytes."""

    path: str
    size: int
    modified: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> FileInfo:
        return cls(str(data["path"]), int(data.get("size") or 0), parse_time(data.get("modified")), raw=data)
