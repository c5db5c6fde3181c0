"""Projects, members and quotas on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, Strict, StrictBool, field_validator

from weft_api.access.auth import Role

ProjectName = Annotated[str, Path(max_length=200, examples=["vision"])]
MemberName = Annotated[str, Path(max_length=200, examples=["ada"])]

_PROJECT: dict[str, Any] = {
    "name": "vision",
    "role": "owner",
    "members": 3,
    "jobs": 12,
    "jobs_estimated": False,
    "created_at": "2026-01-31T08:00:00Z",
}


class ProjectView(BaseModel):
    model_config = ConfigDict(title="Project", json_schema_extra={"examples": [_PROJECT]})

    name: str
    role: Role | None = Field(description="Your role in the project. Null if you see it only as an administrator.")
    members: int
    jobs: int
    jobs_estimated: bool = Field(description="Whether `jobs` is an estimate: more than 1,000 are not counted.")
    created_at: datetime


class ProjectList(BaseModel):
    projects: list[ProjectView]


class NewProject(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "vision", "owner": "ada"}]})

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")
    owner: str | None = Field(
        default=None, max_length=200, description="Name of the user who owns the project. Default: you."
    )
    allow_untrusted: bool = Field(
        default=False,
        description="Whether to create the project although an engine does not keep jobs of different projects apart "
        "(its `exposed` says why), or no worker has looked at the engine yet.",
    )


_MEMBER: dict[str, Any] = {"disabled": False, "since": "2026-01-31T08:00:00Z", "by_group": False}


class MemberView(BaseModel):
    model_config = ConfigDict(title="Member")

    user: str
    role: Role
    disabled: bool
    since: datetime
    by_group: bool = Field(
        description="Whether the user's groups at an identity provider gave the role. It then follows the groups at "
        "each sign-in."
    )


class MemberList(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "members": [
                        {
                            "user": "ada",
                            "role": "owner",
                            "disabled": False,
                            "since": "2026-01-31T08:00:00Z",
                            "by_group": False,
                        },
                        {
                            "user": "bob",
                            "role": "viewer",
                            "disabled": False,
                            "since": "2026-02-01T09:30:00Z",
                            "by_group": True,
                        },
                    ]
                }
            ]
        }
    )

    members: list[MemberView]


class RoleBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"role": "editor"}]})

    role: Role


_QUOTA: dict[str, Any] = {"cpus": 64, "gpus": 8, "memory": 549_755_813_888, "jobs": None}


class _Numbers(BaseModel):
    """Pydantic would take false for 0, with which a project could run nothing."""

    @field_validator("*", mode="before")
    @classmethod
    def _is_number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("must be a number, and is true or false")
        return value


class QuotaBody(_Numbers):
    """The most that a project's running jobs may hold at once, on all engines together. Null means no limit."""

    model_config = ConfigDict(title="Quota", extra="forbid", json_schema_extra={"examples": [_QUOTA]})

    cpus: float | None = Field(default=None, ge=0, le=1e9, allow_inf_nan=False)
    gpus: int | None = Field(default=None, ge=0, le=10**9)
    memory: int | None = Field(default=None, ge=0, le=2**53, description="Memory in bytes.")
    jobs: int | None = Field(default=None, ge=0, le=10**9, description="Number of jobs that run at once.")


class UsedView(BaseModel):
    model_config = ConfigDict(title="Used")

    cpus: float
    gpus: int
    memory: int = Field(description="Memory in bytes.")
    jobs: int


class QuotaView(QuotaBody):
    """A project's quota, and the part of it that its jobs hold now."""

    model_config = ConfigDict(
        title="QuotaView",
        extra="forbid",
        json_schema_extra={
            "examples": [{**_QUOTA, "used": {"cpus": 16, "gpus": 4, "memory": 137_438_953_472, "jobs": 2}}]
        },
    )

    used: UsedView


_SHARE: dict[str, Any] = {"weight": 2, "guaranteed": {"cpus": None, "gpus": 8, "memory": None}, "borrow": True}


class GuaranteedBody(_Numbers):
    """The resources that a project can always get back from projects that have borrowed them. Null: nothing is
    guaranteed."""

    model_config = ConfigDict(title="Guaranteed", extra="forbid")

    cpus: float | None = Field(default=None, ge=0, le=1e9, allow_inf_nan=False)
    gpus: int | None = Field(default=None, ge=0, le=10**9)
    memory: int | None = Field(default=None, ge=0, le=2**53, description="Memory in bytes.")


class ShareBody(BaseModel):
    """A project's part in the fair share among projects."""

    model_config = ConfigDict(title="Share", extra="forbid", json_schema_extra={"examples": [_SHARE]})

    weight: Annotated[float, Strict()] = Field(
        default=1,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="The project's share is its weight, relative to the weights of the other projects.",
    )
    guaranteed: GuaranteedBody = Field(default_factory=GuaranteedBody)
    borrow: StrictBool = Field(
        default=True, description="Whether the project's jobs may hold more than what is guaranteed."
    )


class ShareView(ShareBody):
    """A project's part in the fair share, and what it has used of late."""

    model_config = ConfigDict(
        title="ShareView",
        extra="forbid",
        json_schema_extra={"examples": [{**_SHARE, "share": 0.4, "used": 0.55}]},
    )

    share: float = Field(description="The weight, as a part of the weights of all projects: from 0 to 1.")
    used: float = Field(
        description="What the project has used, as a part of what all projects have used: from 0 to 1. The past counts "
        "less and less (setting `fair_share.half_life`)."
    )


class TunnelsBody(BaseModel):
    """Whether editors may go into running jobs: `weft exec`, `shell`, `cp`, `forward`."""

    model_config = ConfigDict(title="Tunnels", extra="forbid", json_schema_extra={"examples": [{"allowed": True}]})

    allowed: StrictBool


class AgeBody(_Numbers):
    """For how long something of ended jobs is kept. Null means for ever."""

    model_config = ConfigDict(title="Age", extra="forbid")

    days: int | None = Field(default=None, ge=1, le=36_500)


class KeepBody(AgeBody):
    """For how long something of ended jobs is kept, and how much of it in the project. Null means no limit."""

    model_config = ConfigDict(title="Keep", extra="forbid")

    bytes: int | None = Field(default=None, ge=0, le=2**53)


_RETENTION: dict[str, Any] = {
    "logs": {"days": 30, "bytes": None},
    "metrics": None,
    "results": {"days": 90, "bytes": 1_099_511_627_776},
    "events": None,
    "code": {"days": 30},
}


class RetentionBody(BaseModel):
    """How long, and how much of, the data of its ended jobs a project keeps. Where a field is null, the installation's
    setting holds."""

    model_config = ConfigDict(title="Retention", extra="forbid", json_schema_extra={"examples": [_RETENTION]})

    logs: KeepBody | None = Field(default=None, description="The lines of logs.")
    metrics: KeepBody | None = Field(
        default=None, description="Values of metrics. The newest and the best ones stay, as lists show them."
    )
    results: KeepBody | None = Field(
        default=None,
        description="Results and checkpoints in the installation's own store, except those that are a model's version.",
    )
    events: AgeBody | None = Field(default=None, description="Events of jobs.")
    code: AgeBody | None = Field(
        default=None, description="Code that no job and no model uses, counted from its upload."
    )


class KeptView(BaseModel):
    """The retention of one kind of data, and how much of it was removed so far."""

    model_config = ConfigDict(title="Kept")

    days: int | None
    bytes: int | None
    own: bool = Field(description="Whether the project has a setting of its own. Otherwise the installation's holds.")
    held: int | None = Field(description="The bytes that the project has now; null if they are not counted.")
    removed: int = Field(description="How many jobs (or bundles of code) something was removed of so far.")
    removed_bytes: int
    removed_at: datetime | None = Field(description="When something was removed last.")


_KEPT = {"bytes": None, "own": True, "held": 1_048_576, "removed": 12, "removed_bytes": 52_428_800}
_KEPT_EXAMPLE: dict[str, Any] = {**_KEPT, "days": 30, "removed_at": "2026-01-31T08:00:00Z"}
_ALL_EXAMPLE: dict[str, Any] = {
    **_KEPT, "days": None, "own": False, "held": None, "removed": 0, "removed_bytes": 0, "removed_at": None
}  # fmt: skip


class RetentionView(BaseModel):
    """The retention of a project, for each kind of data."""

    model_config = ConfigDict(
        title="RetentionView",
        json_schema_extra={
            "examples": [
                {
                    "logs": _KEPT_EXAMPLE,
                    "metrics": {**_ALL_EXAMPLE, "held": 524_288},
                    "results": {**_ALL_EXAMPLE, "held": 0},
                    "events": _ALL_EXAMPLE,
                    "code": _ALL_EXAMPLE,
                }
            ]
        },
    )

    logs: KeptView
    metrics: KeptView
    results: KeptView
    events: KeptView
    code: KeptView


_CAPS: dict[str, Any] = {
    "editor": {"priority": 50, "cpus": None, "gpus": 4, "memory": None, "jobs": 8},
    "owner": None,
}


class CapBody(_Numbers):
    """Limits for the jobs of one member. Null means no limit."""

    model_config = ConfigDict(title="Cap", extra="forbid")

    priority: int | None = Field(
        default=None, ge=0, le=100, description="The highest priority of a job. A higher one is lowered."
    )
    cpus: float | None = Field(default=None, ge=0, le=1e9, allow_inf_nan=False)
    gpus: int | None = Field(default=None, ge=0, le=10**9)
    memory: int | None = Field(default=None, ge=0, le=2**53, description="Memory in bytes.")
    jobs: int | None = Field(default=None, ge=0, le=10**9, description="Number of jobs that run at once.")


class CapsBody(BaseModel):
    """The caps on each member, by role. Null means no cap."""

    model_config = ConfigDict(title="Caps", extra="forbid", json_schema_extra={"examples": [_CAPS]})

    editor: CapBody | None = None
    owner: CapBody | None = None
