"""Users on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from weft_api.access.auth import Membership
from weft_api.http.secret_text import SecretText

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}$"
UserName = Annotated[str, Path(max_length=200, examples=["ada"])]
Password = Annotated[SecretText, Field(min_length=8, max_length=1000)]

_USER: dict[str, Any] = {
    "name": "ada",
    "email": "ada@example.org",
    "admin": False,
    "disabled": False,
    "password": True,
    "created_at": "2026-01-31T08:00:00Z",
    "projects": [{"name": "vision", "role": "editor"}],
}


class UserView(BaseModel):
    model_config = ConfigDict(title="User", json_schema_extra={"examples": [_USER]})

    name: str
    email: str | None
    admin: bool = Field(description="Whether the user may manage users, projects and quotas.")
    disabled: bool = Field(description="Whether the server refuses the user's passwords, tokens and sessions.")
    password: bool = Field(description="Whether the user has a password. Users without a password sign in with tokens.")
    created_at: datetime
    projects: list[Membership]


class UserList(BaseModel):
    users: list[UserView]


class NewUser(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "ada", "email": "ada@example.org", "password": "…at least 8…"}]},
    )

    name: str = Field(pattern=NAME_PATTERN)
    email: str | None = Field(default=None, max_length=300)
    password: Password | None = None
    admin: bool = False


class UserChange(BaseModel):
    """Changes to a user. Missing fields stay as they are."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"disabled": True}, {"password": "…", "current_password": "…"}]},
    )

    password: Password | None = None
    current_password: SecretText | None = Field(
        default=None,
        max_length=1000,
        description="Required to change your own password. If you have none yet, an administrator sets the first.",
    )
    end_tokens: bool | None = Field(
        default=None,
        description="Whether the new password also ends all of the user's tokens and sessions, this one included.",
    )
    disabled: bool | None = None
    admin: bool | None = None
