"""What the server tells, as frozen values. ``raw`` is the server's JSON, with fields that this version may not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Json = Mapping[str, Any]

TERMINAL = frozenset({"COMPLETED", "FAILED", "HALTED"})
"""States that a job does not leave by itself."""


def parse_time(value: Any) -> datetime | None:
    """An ISO 8601 time (always with its offset) or None."""
    return datetime.fromisoformat(value) if isinstance(value, str) and value else None


@dataclass(frozen=True)
class _Told:
    raw: Json = field(default_factory=dict, repr=False, compare=False, kw_only=True)


@dataclass(frozen=True)
class Problem:
    """One fault of a manifest: where (``path``, ``line`` from 1), what stood there, what is accepted."""

    path: str
    message: str
    line: int | None = None
    found: str | None = None
    accepted: str | None = None

    @classmethod
    def from_json(cls, data: Json) -> Problem:
        def text(value: Any) -> str | None:
            if isinstance(value, list):
                return ", ".join(str(one) for one in value) or None
            return None if value is None else str(value)

        line = data.get("line")
        return cls(
            path=str(data.get("path") or ""),
            message=str(data.get("message") or ""),
            line=line if isinstance(line, int) else None,
            found=text(data.get("found")),
            accepted=text(data.get("accepted")),
        )


@dataclass(frozen=True)
class Framework:
    """``version`` is the image catalogue's, ``launcher`` is what starts the processes (never ``auto``)."""

    name: str
    version: str
    launcher: str
    command: str


@dataclass(frozen=True)
class LearnerStatus(_Told):
    """One learner of an attempt. ``learner`` counts from 1, as ``LEARNER_ID`` does."""

    learner: int
    phase: str
    node: str | None = None
    address: str | None = None
    ports: tuple[int, ...] = ()
    exit_code: int | None = None
    exit_reason: str | None = None
    lost: str | None = None
    """Why the others went on without it, in an elastic job."""

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
            raw=data,
        )


@dataclass(frozen=True)
class Round(_Told):
    """Who trains together now, in an elastic job."""

    n: int
    learners: tuple[int, ...]
    """In order of rank; none while they gather."""
    processes: int
    reason: str = ""

    @classmethod
    def from_json(cls, data: Json) -> Round:
        learners = tuple(int(one) for one in data.get("learners") or ())
        return cls(int(data["n"]), learners, int(data.get("processes") or 0), str(data.get("reason") or ""), raw=data)


@dataclass(frozen=True)
class Attempt(_Told):
    """One try of a job, ``n`` from 1. ``outcome`` is None while it lasts."""

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
    """What it began with: ``generation``, ``job``, ``attempt``, ``at`` (seconds since the epoch), ``files``, ``size``
    (bytes)."""

    @classmethod
    def from_json(cls, data: Json) -> Attempt:
        return cls(
            n=int(data["n"]),
            outcome=data.get("outcome"),
            reason=str(data.get("reason") or ""),
            exit_code=data.get("exit_code"),
            created_at=parse_time(data.get("created_at")),
            ended_at=parse_time(data.get("ended_at")),
            learners=tuple(LearnerStatus.from_json(one) for one in data.get("learners") or ()),
            round=Round.from_json(data["round"]) if data.get("round") else None,
            checkpoint=data.get("checkpoint"),
            raw=data,
        )


@dataclass(frozen=True)
class Checkpoint(_Told):
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
class Event(_Told):
    """Something that happened to a job. ``state`` is set for kind ``state``: the state entered."""

    id: int
    at: datetime | None
    kind: str
    message: str
    state: str | None = None
    attempt: int | None = None
    data: Json = field(default_factory=dict)

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
            raw=data,
        )


@dataclass(frozen=True)
class LogLine(_Told):
    """One line of a learner's output. ``n`` is its place in the job's log, ``t`` milliseconds since the epoch by the
    learner's clock, ``learner`` counts from 1."""

    n: int
    t: int
    attempt: int
    learner: int
    text: str

    @classmethod
    def from_json(cls, data: Json) -> LogLine:
        return cls(
            n=int(data["n"]),
            t=int(data.get("t") or 0),
            attempt=int(data.get("attempt") or 0),
            learner=int(data.get("learner") or 0),
            text=str(data.get("text") or ""),
            raw=data,
        )


@dataclass(frozen=True)
class LogMatch(_Told):
    """A line that was searched for, the lines around it, and what matches in its text: (begin, end) in characters."""

    line: LogLine
    before: tuple[LogLine, ...] = ()
    after: tuple[LogLine, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_json(cls, data: Json) -> LogMatch:
        return cls(
            line=LogLine.from_json(data["line"]),
            before=tuple(LogLine.from_json(one) for one in data.get("before") or ()),
            after=tuple(LogLine.from_json(one) for one in data.get("after") or ()),
            spans=tuple((int(begin), int(end)) for begin, end in data.get("spans") or ()),
            raw=data,
        )


@dataclass(frozen=True)
class Gap(_Told):
    """Stands in a followed log for the lines from number ``first`` to number ``last``, which came faster than they were
    taken; those of other learners count in ``lines``."""

    first: int
    last: int
    lines: int

    @classmethod
    def from_json(cls, data: Json) -> Gap:
        return cls(first=int(data["from"]), last=int(data["to"]), lines=int(data["lines"]), raw=data)


@dataclass(frozen=True)
class StateChange:
    """Says in a followed log that the job has entered ``state``; ``final`` ends the log."""

    state: str
    reason: str = ""
    final: bool = False


@dataclass(frozen=True)
class FileInfo(_Told):
    """A file among a job's results; ``size`` in bytes."""

    path: str
    size: int
    modified: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> FileInfo:
        return cls(str(data["path"]), int(data.get("size") or 0), parse_time(data.get("modified")), raw=data)


@dataclass(frozen=True)
class ObjectInfo(_Told):
    """An object in a data store; ``size`` in bytes."""

    key: str
    size: int
    modified: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> ObjectInfo:
        return cls(str(data["key"]), int(data.get("size") or 0), parse_time(data.get("modified")), raw=data)


@dataclass(frozen=True)
class Datastore(_Told):
    """An S3 endpoint whose credentials the server keeps; they never come back."""

    name: str
    endpoint: str
    region: str | None = None
    user_name: str | None = None

    @classmethod
    def from_json(cls, data: Json) -> Datastore:
        return cls(
            str(data["name"]), str(data.get("endpoint") or ""), data.get("region"), data.get("user_name"), raw=data
        )


@dataclass(frozen=True)
class Model(_Told):
    """A name in the registry. ``latest`` is the highest version's number, ``stages`` says at which version each is.
    ``promotions``, newest first, only from :meth:`Models.get`: {stage, version, user, at}."""

    name: str
    latest: int | None
    versions: int
    stages: Mapping[str, int] = field(default_factory=dict)
    updated_at: datetime | None = None
    promotions: tuple[Json, ...] = ()

    @classmethod
    def from_json(cls, data: Json) -> Model:
        return cls(
            name=str(data["name"]),
            latest=data.get("latest"),
            versions=int(data.get("versions") or 0),
            stages=data.get("stages") or {},
            updated_at=parse_time(data.get("updated_at")),
            promotions=tuple(data.get("promotions") or ()),
            raw=data,
        )


@dataclass(frozen=True)
class ModelVersion(_Told):
    """The results of one job as a version of a model. ``files`` holds ``files``, ``bytes`` and ``sha256`` of what was
    registered, ``place`` where it is in a store of the user's own (None: the installation's). ``lineage`` and
    ``children`` only from :meth:`Models.version`."""

    model: str
    version: int
    job: str
    user: str = ""
    stages: tuple[str, ...] = ()
    parent: str | None = None
    files: Json = field(default_factory=dict)
    place: str | None = None
    created_at: datetime | None = None
    lineage: Json = field(default_factory=dict)
    children: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """``mnist@3``."""
        return f"{self.model}@{self.version}"

    @classmethod
    def from_json(cls, data: Json) -> ModelVersion:
        return cls(
            model=str(data["model"]),
            version=int(data["version"]),
            job=str(data.get("job") or ""),
            user=str(data.get("user") or ""),
            stages=tuple(data.get("stages") or ()),
            parent=data.get("parent"),
            files=data.get("files") or {},
            place=data.get("place"),
            created_at=parse_time(data.get("created_at")),
            lineage=data.get("lineage") or {},
            children=tuple(data.get("children") or ()),
            raw=data,
        )


@dataclass(frozen=True)
class Secret(_Told):
    """The name of a secret that the server keeps; its value never comes back."""

    name: str
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> Secret:
        return cls(
            name=str(data["name"]),
            created_at=parse_time(data.get("created_at") or data.get("created")),
            updated_at=parse_time(data.get("updated_at") or data.get("updated")),
            raw=data,
        )


@dataclass(frozen=True)
class Token(_Told):
    """An API token. ``token`` is the token itself, only in the answer to its creation."""

    id: str
    name: str
    prefix: str
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    token: str | None = field(default=None, repr=False)

    @classmethod
    def from_json(cls, data: Json) -> Token:
        return cls(
            id=str(data["id"]),
            name=str(data.get("name") or ""),
            prefix=str(data.get("prefix") or ""),
            created_at=parse_time(data.get("created_at")),
            expires_at=parse_time(data.get("expires_at")),
            last_used_at=parse_time(data.get("last_used_at")),
            token=data.get("token"),
            raw=data,
        )


@dataclass(frozen=True)
class User(_Told):
    """Of the installation. ``projects`` is each one's name and the user's role there."""

    name: str
    email: str | None = None
    admin: bool = False
    disabled: bool = False
    projects: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> User:
        return cls(
            name=str(data["name"]),
            email=data.get("email"),
            admin=bool(data.get("admin")),
            disabled=bool(data.get("disabled")),
            projects={str(one["name"]): str(one["role"]) for one in data.get("projects") or []},
            created_at=parse_time(data.get("created_at")),
            raw=data,
        )


@dataclass(frozen=True)
class Project(_Told):
    """The tenant. ``role`` is one's own in it; None: seen as an administrator only."""

    name: str
    role: str | None = None
    members: int = 0
    jobs: int = 0
    created_at: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> Project:
        return cls(
            name=str(data["name"]),
            role=data.get("role"),
            members=int(data.get("members") or 0),
            jobs=int(data.get("jobs") or 0),
            created_at=parse_time(data.get("created_at")),
            raw=data,
        )


@dataclass(frozen=True)
class Member(_Told):
    """Of a project."""

    user: str
    role: str
    disabled: bool = False
    since: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> Member:
        return cls(
            user=str(data["user"]),
            role=str(data.get("role") or ""),
            disabled=bool(data.get("disabled")),
            since=parse_time(data.get("since")),
            raw=data,
        )


@dataclass(frozen=True)
class Quota(_Told):
    """``limits`` and ``used`` by ``cpus``, ``gpus``, ``memory`` (bytes) and ``jobs``; a limit of None is none."""

    limits: Mapping[str, float | None]
    used: Mapping[str, float]

    NAMES = ("cpus", "gpus", "memory", "jobs")

    @classmethod
    def from_json(cls, data: Json) -> Quota:
        used = data.get("used") or {}
        return cls(
            limits={name: data.get(name) for name in cls.NAMES},
            used={name: used.get(name) or 0 for name in cls.NAMES},
            raw=data,
        )


@dataclass(frozen=True)
class EngineNode(_Told):
    """A node of an engine. ``capacity``, ``used`` (by Weft's jobs) and ``busy`` (by others) as an :class:`Engine`'s."""

    name: str
    state: str
    gpu_type: str | None = None
    capacity: Json = field(default_factory=dict)
    used: Json = field(default_factory=dict)
    busy: Json = field(default_factory=dict)
    taints: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, data: Json) -> EngineNode:
        return cls(
            name=str(data["name"]),
            state=str(data.get("state") or ""),
            gpu_type=data.get("gpu_type"),
            capacity=data.get("capacity") or {},
            used=data.get("used") or {},
            busy=data.get("busy") or {},
            taints=tuple(str(one) for one in data.get("taints") or ()),
            raw=data,
        )


@dataclass(frozen=True)
class WaitingJob(_Told):
    """A job of the project's that waits for an engine; ``place`` counts other projects' jobs, too."""

    id: str
    name: str
    state: str
    place: int | None = None
    learners: int = 1
    resources: Json = field(default_factory=dict)
    reason: str = ""
    condition: str | None = None
    state_since: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> WaitingJob:
        return cls(
            id=str(data["id"]),
            name=str(data.get("name") or ""),
            state=str(data.get("state") or ""),
            place=data.get("place"),
            learners=int(data.get("learners") or 1),
            resources=data.get("resources") or {},
            reason=str(data.get("reason") or ""),
            condition=data.get("condition"),
            state_since=parse_time(data.get("state_since")),
            raw=data,
        )


@dataclass(frozen=True)
class Engine(_Told):
    """Where learners run. ``capacity``, ``used`` (by Weft's jobs), ``busy`` (by others) and ``free`` hold ``cpus``,
    ``gpus`` and ``memory`` (bytes); empty until a worker has seen the engine. ``health``: up, or unreachable or unseen
    with more in ``condition``. ``nodes``, ``waiting`` and ``waiting_of_others`` only from :meth:`Client.engine`."""

    name: str
    type: str
    default: bool
    health: str = ""
    condition: str | None = None
    capacity: Json = field(default_factory=dict)
    used: Json = field(default_factory=dict)
    busy: Json = field(default_factory=dict)
    free: Json = field(default_factory=dict)
    queue: str = ""
    node_counts: Json = field(default_factory=dict)
    seen_at: datetime | None = None
    unreachable_since: datetime | None = None
    error: str | None = None
    queued: int = 0
    running: int = 0
    nodes: tuple[EngineNode, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()
    waiting_of_others: int = 0

    @classmethod
    def from_json(cls, data: Json) -> Engine:
        return cls(
            name=str(data["name"]),
            type=str(data.get("type") or ""),
            default=bool(data.get("default")),
            health=str(data.get("health") or ""),
            condition=data.get("condition"),
            capacity=data.get("capacity") or {},
            used=data.get("used") or {},
            busy=data.get("busy") or {},
            free=data.get("free") or {},
            queue=str(data.get("queue") or ""),
            node_counts=data.get("node_counts") or {},
            seen_at=parse_time(data.get("seen_at")),
            unreachable_since=parse_time(data.get("unreachable_since")),
            error=data.get("error"),
            queued=int(data.get("queued") or 0),
            running=int(data.get("running") or 0),
            nodes=tuple(EngineNode.from_json(one) for one in data.get("nodes") or ()),
            waiting=tuple(WaitingJob.from_json(one) for one in data.get("waiting") or ()),
            waiting_of_others=int(data.get("waiting_of_others") or 0),
            raw=data,
        )
