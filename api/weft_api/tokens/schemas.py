"""Sign-in and tokens on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from weft_api.access.auth import Role
from weft_api.access.budgets import BudgetView
from weft_api.http.secret_text import SecretText

_TOKEN: dict[str, Any] = {
    "id": "tok-3q8z1m5n7c2d",
    "kind": "api",
    "name": "laptop",
    "prefix": "weft_u_Kx3v",
    "user": "admin",
    "role": None,
    "created_at": "2026-01-31T08:00:00Z",
    "expires_at": None,
    "last_used_at": None,
    "budget": {"gpu_hours": 10, "used": 2.5, "reserved": 4, "left": 3.5},
    "current": True,
}


class TokenView(BaseModel):
    model_config = ConfigDict(title="Token", json_schema_extra={"examples": [_TOKEN]})

    id: str
    kind: str = Field(description="`api` for a token, `browser` for a session of the dashboard.")
    name: str
    prefix: str = Field(description="The token's first characters.")
    user: str
    role: Role | None = Field(description="The most that the token may do. Null: all that its user may.")
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    budget: BudgetView | None = Field(
        default=None, description="The budget of its jobs, which tokens that it makes share. Null: it has none."
    )
    current: bool = Field(default=False, description="The request itself is signed in with this token or session.")


class TokenList(BaseModel):
    tokens: list[TokenView]


class CreatedToken(TokenView):
    """A new token. No other answer contains the token itself."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**_TOKEN, "token": "weft_u_Kx3v…", "project": "default"}]}
    )

    token: str
    project: str


class TokenBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "ci", "expires_in_days": 90, "role": "viewer"}]}
    )

    name: str = Field(min_length=1, max_length=100)
    expires_in_days: int | None = Field(default=None, ge=1, le=3650)
    role: Role | None = Field(
        default=None,
        description="The most that the token may do, whatever its user may: `viewer` reads, `editor` also submits, "
        "`owner` also manages the project. Such a token never manages the installation. Default: all that you may.",
    )
    gpu_hours: float | None = Field(
        default=None,
        gt=0,
        le=1e7,
        description="A budget: the GPU-hours that the token's jobs may use in all. Their manifests need `max_runtime`. "
        "Such a token never manages the installation. Default: no budget, or that of the token that makes this one.",
    )


class LoginBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"user": "admin", "password": "…", "project": "default"}]}
    )

    user: str = Field(min_length=1, max_length=200)
    password: SecretText = Field(max_length=1000)
    project: str | None = Field(default=None, max_length=200, description="Required for members of several projects.")


class DeviceBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"client": "weft on laptop"}]})

    client: str | None = Field(
        default=None,
        max_length=100,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="How the program names itself and its machine. Its user sees this.",
    )
    project: str | None = Field(
        default=None, pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", description="Default: the user's choice on the page."
    )


class DeviceCode(BaseModel):
    """The codes of a program that waits to be signed in (RFC 8628)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "device_code": "weft_d_…",
                    "user_code": "BCDF-GHJK",
                    "path": "/device",
                    "path_complete": "/device?code=BCDF-GHJK",
                    "expires_in": 600,
                    "interval": 3,
                }
            ]
        }
    )

    device_code: str = Field(description="The program's secret, for `POST /device:token`.")
    user_code: str = Field(description="The code that the program shows to its user.")
    path: str = Field(description="The page of this server on which the user enters the code.")
    path_complete: str = Field(description="The same page, with the code in it.")
    expires_in: int = Field(description="Seconds for which the codes are valid.")
    interval: int = Field(description="Seconds to wait between two requests for the token.")


class DeviceTokenBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"device_code": "weft_d_…"}]})

    device_code: SecretText = Field(max_length=200)


class DeviceView(BaseModel):
    """A program that waits to be signed in."""

    model_config = ConfigDict(
        title="DeviceLogin",
        json_schema_extra={
            "examples": [
                {
                    "user_code": "BCDF-GHJK",
                    "client": "weft on laptop",
                    "address": "203.0.113.7",
                    "project": None,
                    "expires_at": "2026-01-31T08:25:02Z",
                }
            ]
        },
    )

    user_code: str
    client: str
    address: str = Field(description="Where the program's request came from.")
    project: str | None
    expires_at: datetime


class ConfirmBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"project": "vision"}]})

    project: str | None = Field(
        default=None, max_length=200, description="Default: the project that the program asks for, or the session's."
    )


class NewServiceAccount(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "ci", "role": "editor"}]})

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")
    role: Role = "editor"


class ServiceAccountView(BaseModel):
    model_config = ConfigDict(
        title="ServiceAccount",
        json_schema_extra={
            "examples": [
                {
                    "name": "ci",
                    "user": "service:ci@vision",
                    "role": "editor",
                    "tokens": 1,
                    "created_at": "2026-01-31T08:00:00Z",
                }
            ]
        },
    )

    name: str
    user: str = Field(description="Its name as a user: in jobs, events and the audit trail.")
    role: Role
    tokens: int = Field(description="The number of its valid tokens.")
    created_at: datetime


class ServiceAccountList(BaseModel):
    service_accounts: list[ServiceAccountView]


class Me(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"user": "admin", "project": "default", "role": "owner"}]}
    )

    user: str
    project: str
    role: str
    budget: BudgetView | None = Field(default=None, description="The budget of the token's jobs. Null: it has none.")
