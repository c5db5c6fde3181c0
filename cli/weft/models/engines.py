"""Engines, their nodes and queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from weft.models.base import Json, ServerValue, parse_time


@dataclass(frozen=True)
class EngineNode(ServerValue):
    """A node of an engine. ``capacity``, ``used`` (by Weft's jobs) and ``busy`` (by others) as an :class:`Engine`'s."""

    name: str
    state: str
    gpu_type: str | None = None
    capacity: Json = field(default_factory=dict)
    used: Json = field(default_factory=dict)
    busy: Json = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    blames: int = 0
    """How many jobs blame the node for what happened to them."""
    excluded: bool = False
    """Whether it gets no learners because of that."""

    @classmethod
    def from_json(cls, data: Json) -> EngineNode:
        return cls(
            name=str(data["name"]),
            state=str(data.get("state") or ""),
            gpu_type=data.get("gpu_type"),
            capacity=data.get("capacity") or {},
            used=data.get("used") or {},
            busy=data.get("busy") or {},
            taints=tuple(str(taint) for taint in data.get("taints") or ()),
            blames=int(data.get("blames") or 0),
            excluded=bool(data.get("excluded")),
            raw=data,
        )


@dataclass(frozen=True)
class WaitingJob(ServerValue):
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
class Room(ServerValue):
    """The number of learners of one size that fit: now, when nothing else runs, on nodes that the cluster may add, and
    on nodes whose taints only a profile may tolerate; None until a worker has observed the engine."""

    now: int | None
    empty: int | None
    potential: int | None
    tainted: int | None

    @classmethod
    def from_json(cls, data: Json) -> Room:
        return cls(data.get("now"), data.get("empty"), data.get("potential"), data.get("tainted"), raw=data)


@dataclass(frozen=True)
class Engine(ServerValue):
    """Where learners run. ``capacity``, ``used`` (by Weft's jobs), ``busy`` (by others) and ``free`` hold ``cpus``,
    ``gpus`` and ``memory`` (bytes); empty until a worker has seen the engine. ``health``: up, or unreachable or unseen
    with more in ``condition``. ``exposed``: why the engine does not keep jobs apart, if it does not;
    ``shared_network``: why jobs share their machine's network, if they are kept apart otherwise. ``nodes``, ``waiting``
    and ``waiting_of_others`` only from :meth:`Client.engine`."""

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
    exposed: str = ""
    shared_network: str = ""
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
            exposed=str(data.get("exposed") or ""),
            shared_network=str(data.get("shared_network") or ""),
            node_counts=data.get("node_counts") or {},
            seen_at=parse_time(data.get("seen_at")),
            unreachable_since=parse_time(data.get("unreachable_since")),
            error=data.get("error"),
            queued=int(data.get("queued") or 0),
            running=int(data.get("running") or 0),
            nodes=tuple(EngineNode.from_json(node) for node in data.get("nodes") or ()),
            waiting=tuple(WaitingJob.from_json(job) for job in data.get("waiting") or ()),
            waiting_of_others=int(data.get("waiting_of_others") or 0),
            raw=data,
        )
