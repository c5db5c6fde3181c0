"""Tokens, users and projects, and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from weft.models.base import Json, ServerValue, parse_time


@dataclass(frozen=True)
class Budget(ServerValue):
    """The GPU-hours that the jobs of a token may use in all, and what they have ``used`` and ``reserved``."""

    gpu_hours: float
    used: float = 0.0
    reserved: float = 0.0
    left: float = 0.0

    @classmethod
    def from_json(cls, data: Json) -> Budget:
        return cls(*(float(data.get(key) or 0) for key in ("gpu_hours", "used", "reserved", "left")), raw=data)


@dataclass(frozen=True)
class Token(ServerValue):
    """An API token. ``role`` is the most that it may do, or None for all that its user may. ``budget`` is that of its
    jobs, or None. ``token`` is the token itself, only in the answer to its creation."""

    id: str
    name: str
    prefix: str
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    role: str | None = None
    token: str | None = field(default=None, repr=False)
    budget: Budget | None = None

    @classmethod
    def from_json(cls, data: Json) -> Token:
        return cls(
            id=str(data["id"]),
            name=str(data.get("name") or ""),
            prefix=str(data.get("prefix") or ""),
            created_at=parse_time(data.get("created_at")),
            expires_at=parse_time(data.get("expires_at")),
            last_used_at=parse_time(data.get("last_used_at")),
            role=data.get("role"),
            token=data.get("token"),
            budget=Budget.from_json(data["budget"]) if data.get("budget") else None,
            raw=data,
        )


@dataclass(frozen=True)
class ServiceAccount(ServerValue):
    """An account of a project for machines. ``user`` is its name in jobs and in the audit trail; ``tokens`` the number
    of its valid tokens."""

    name: str
    user: str
    role: str
    tokens: int = 0
    created_at: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> ServiceAccount:
        return cls(
            name=str(data["name"]),
            user=str(data.get("user") or ""),
            role=str(data.get("role") or ""),
            tokens=int(data.get("tokens") or 0),
            created_at=parse_time(data.get("created_at")),
            raw=data,
        )


@dataclass(frozen=True)
class User(ServerValue):
    """A user of the installation. ``projects`` has the user's role by the name of each project."""

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
            projects={str(membership["name"]): str(membership["role"]) for membership in data.get("projects") or []},
            created_at=parse_time(data.get("created_at")),
            raw=data,
        )


@dataclass(frozen=True)
class Project(ServerValue):
    """A project (tenant). ``role`` is your role in it, or None if you see it only as an administrator.
    ``jobs`` is an estimate if ``jobs_estimated``."""

    name: str
    role: str | None = None
    members: int = 0
    jobs: int = 0
    jobs_estimated: bool = False
    created_at: datetime | None = None

    @classmethod
    def from_json(cls, data: Json) -> Project:
        return cls(
            name=str(data["name"]),
            role=data.get("role"),
            members=int(data.get("members") or 0),
            jobs=int(data.get("jobs") or 0),
            jobs_estimated=bool(data.get("jobs_estimated")),
            created_at=parse_time(data.get("created_at")),
            raw=data,
        )


@dataclass(frozen=True)
class Member(ServerValue):
    """A member of a project. ``by_group``: the user's groups at an identity provider gave the role."""

    user: str
    role: str
    disabled: bool = False
    since: datetime | None = None
    by_group: bool = False

    @classmethod
    def from_json(cls, data: Json) -> Member:
        return cls(
            user=str(data["user"]),
            role=str(data.get("role") or ""),
            disabled=bool(data.get("disabled")),
            since=parse_time(data.get("since")),
            by_group=bool(data.get("by_group")),
            raw=data,
        )


@dataclass(frozen=True)
class Quota(ServerValue):
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
class Share(ServerValue):
    """A project's part in the fair share. ``share`` and ``used`` are parts of the whole, from 0 to 1."""

    weight: float
    guaranteed: Mapping[str, float | None]
    borrow: bool
    share: float
    used: float

    NAMES = ("cpus", "gpus", "memory")

    @classmethod
    def from_json(cls, data: Json) -> Share:
        guaranteed = data.get("guaranteed") or {}
        return cls(
            weight=float(data.get("weight") or 1),
            guaranteed={name: guaranteed.get(name) for name in cls.NAMES},
            borrow=bool(data.get("borrow", True)),
            share=float(data.get("share") or 0),
            used=float(data.get("used") or 0),
            raw=data,
        )


@dataclass(frozen=True)
class Retention(ServerValue):
    """How long, and how much of, the data of its ended jobs a project keeps. ``own``: the project's own settings by
    kind (``days``, ``bytes``), without those that are the installation's."""

    own: Mapping[str, Mapping[str, int | None] | None]

    KINDS = ("logs", "metrics", "results", "events", "code")
    SIZED = ("logs", "metrics", "results")

    @classmethod
    def from_json(cls, data: Json) -> Retention:
        def limits(kind: str) -> dict[str, int | None]:
            names = ("days", "bytes") if kind in cls.SIZED else ("days",)
            return {name: data[kind].get(name) for name in names}

        return cls(own={kind: limits(kind) for kind in cls.KINDS if (data.get(kind) or {}).get("own")}, raw=data)

    def removed_at(self, kind: str) -> datetime | None:
        """When something of a kind was removed last."""
        return parse_time((self.raw.get(kind) or {}).get("removed_at"))


@dataclass(frozen=True)
class Caps(ServerValue):
    """The caps on each member of a project, by role: ``priority``, ``cpus``, ``gpus``, ``memory`` (bytes), ``jobs``."""

    roles: Mapping[str, Mapping[str, float | None]]

    ROLES = ("editor", "owner")
    NAMES = ("priority", "cpus", "gpus", "memory", "jobs")

    @classmethod
    def from_json(cls, data: Json) -> Caps:
        return cls(
            roles={role: {name: (data.get(role) or {}).get(name) for name in cls.NAMES} for role in cls.ROLES},
            raw=data,
        )


@dataclass(frozen=True)
class AuditRecord(ServerValue):
    """The record of an action. ``actor`` is ``token``, ``session``, ``password``, ``provider``, ``learner``,
    ``anonymous`` or ``system``."""

    id: int
    at: datetime | None
    actor: str
    action: str
    outcome: str
    status: int
    user: str | None = None
    token_id: str | None = None
    address: str = ""
    object_kind: str | None = None
    object_id: str | None = None
    project: str | None = None
    request_id: str = ""
    count: int = 1

    @property
    def object(self) -> str:
        """The kind and the id of the object, as far as they are known: ``job:job-4k9x2m7qd1ze``."""
        return ":".join(part for part in (self.object_kind, self.object_id) if part)

    @classmethod
    def from_json(cls, data: Json) -> AuditRecord:
        return cls(
            id=int(data["id"]),
            at=parse_time(data.get("at")),
            actor=str(data.get("actor") or ""),
            action=str(data.get("action") or ""),
            outcome=str(data.get("outcome") or ""),
            status=int(data.get("status") or 0),
            user=data.get("user"),
            token_id=data.get("token_id"),
            address=str(data.get("address") or ""),
            object_kind=data.get("object_kind"),
            object_id=data.get("object_id"),
            project=data.get("project"),
            request_id=str(data.get("request_id") or ""),
            count=int(data.get("count") or 1),
            raw=data,
        )
