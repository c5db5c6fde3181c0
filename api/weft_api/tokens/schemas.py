"""Sign-in and tokens on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from weft_api.http.secret_text import SecretText

_TOKEN: dict[str, Any] = {
    "id": "tok-3q8z1m5n7c2d",
    "kind": "api",
    "name": "laptop",
    "prefix": "weft_u_Kx3v",
    "user": "admin",
    "created_at": "2026-01-31T08:00:00Z",
    "expires_at": None,
    "last_used_at": None,
}


class TokenView(BaseModel):
    model_config = ConfigDict(title="Token", json_schema_extra={"examples": [_TOKEN]})

    id: str
    kind: str = Field(description="`api` for a token, `browser` for a session of the dashboard.")
    name: str
    prefix: str = Field(description="The token's first characters.")
    user: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


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
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "ci", "expires_in_days": 90}]})

    name: str = Field(min_length=1, max_length=100)
    expires_in_days: int | None = Field(default=None, ge=1, le=3650)


class LoginBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"user": "admin", "password": "…", "project": "default"}]}
    )

    user: str = Field(min_length=1, max_length=200)
    password: SecretText = Field(max_length=1000)
    project: str | None = Field(default=None, max_length=200, description="Required for members of several projects.")


class Me(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"user": "admin", "project": "default", "role": "owner"}]}
    )

    user: str
    project: str
    role: str
