"""Browsers' sessions on the wire."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from weft_api.auth import Role


class SessionBody(BaseModel):
    """A user name and password, or a token."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"user": "admin", "password": "…"}, {"token": "weft_u_…"}]},
    )

    user: str | None = Field(default=None, min_length=1, max_length=200)
    password: SecretStr | None = Field(default=None, max_length=1000)
    token: SecretStr | None = Field(default=None, max_length=200)
    project: str | None = Field(
        default=None, max_length=200, description="Where to begin; default: the one used last, or the token's."
    )

    @model_validator(mode="after")
    def _one_way(self) -> SessionBody:
        by_password = self.user is not None and self.password is not None
        if self.token is not None and self.user is None and self.password is None:
            return self
        if self.token is None and by_password:
            return self
        raise ValueError("either user and password, or token")


class ProjectBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"project": "vision"}]})

    project: str = Field(max_length=200)


class Membership(BaseModel):
    name: str
    role: Role


class SessionView(BaseModel):
    model_config = ConfigDict(
        title="Session",
        json_schema_extra={
            "examples": [
                {
                    "user": "admin",
                    "project": "default",
                    "role": "owner",
                    "projects": [{"name": "default", "role": "owner"}, {"name": "vision", "role": "editor"}],
                    "admin": True,
                    "expires_at": "2026-01-31T20:00:00Z",
                }
            ]
        },
    )

    user: str
    project: str = Field(description="The one that everything asked by this session is about.")
    role: Role
    projects: list[Membership] = Field(description="All that the user is a member of.")
    admin: bool = Field(description="May look after users, projects and quotas.")
    expires_at: datetime | None = Field(description="When it ends unless it is used; null of a token that never ends.")
