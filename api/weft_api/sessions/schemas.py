"""Browsers' sessions on the wire."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field, model_validator

from weft_api.access.auth import Membership, Role
from weft_api.http.secret_text import SecretText


class ProviderBody(BaseModel):
    """The parameters that an identity provider sent with the browser to ``/signin/NAME``."""

    model_config = ConfigDict(
        title="ProviderAnswer",
        extra="forbid",
        json_schema_extra={
            "examples": [{"name": "acme", "code": "…", "state": "…", "issuer": "https://login.acme.com"}]
        },
    )

    name: str = Field(max_length=100, description="The provider, as `GET /signin` names it.")
    code: SecretText = Field(max_length=8000)
    state: str = Field(max_length=200)
    issuer: str | None = Field(default=None, max_length=2000, description="The parameter `iss`, if there is one.")


class ProviderName(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "acme"}]})

    name: str = Field(max_length=100, description="The provider, as `GET /signin` names it.")


class ProviderUrl(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"url": "https://login.acme.com/authorize?client_id=weft&state=…"}]}
    )

    url: str = Field(description="The page of the provider that the browser is to open.")


class SessionBody(BaseModel):
    """A user name and a password, or a token, or the part of a sign-in link after the ``#``, or the answer of an
    identity provider."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"user": "admin", "password": "…"}, {"token": "weft_u_…"}, {"link": "weft_l_…"}]
        },
    )

    user: str | None = Field(default=None, min_length=1, max_length=200)
    password: SecretText | None = Field(default=None, max_length=1000)
    token: SecretText | None = Field(default=None, max_length=200)
    link: SecretText | None = Field(default=None, max_length=200)
    provider: ProviderBody | None = None
    project: str | None = Field(
        default=None,
        max_length=200,
        description="The project to start in. Default: the project used last, or the token's project. A token opens no "
        "other project, unless its user is an administrator.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> SessionBody:
        ways = ("user", "password", "token", "link", "provider")
        given = {name for name in ways if getattr(self, name) is not None}
        if given in ({"user", "password"}, {"token"}, {"link"}, {"provider"}):
            return self
        raise ValueError("either user and password, or token, or link, or provider")


class LinkView(BaseModel):
    """A link that signs in a browser once."""

    model_config = ConfigDict(
        title="SignInLink",
        json_schema_extra={"examples": [{"path": "/signin#weft_l_…", "expires_at": "2026-01-31T08:25:02Z"}]},
    )

    path: str = Field(description="A path of this server. Only this answer contains it.")
    expires_at: datetime


class ProviderView(BaseModel):
    model_config = ConfigDict(title="Provider")

    name: str
    title: str = Field(description="The provider's name for people.")


class SignInView(BaseModel):
    """Hints for signing in to this server."""

    model_config = ConfigDict(
        title="SignIn",
        json_schema_extra={
            "examples": [
                {
                    "profile_file": "/home/ada/.weft/client.toml",
                    "providers": [{"name": "acme", "title": "Acme"}],
                }
            ]
        },
    )

    providers: list[ProviderView] = Field(description="The identity providers by which users can sign in.")

    profile_file: str | None = Field(
        description="The CLI's profile file that holds a token, if `weft up` runs this server. Only callers on the "
        "same machine get it."
    )


class ProjectBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"project": "vision"}]})

    project: str = Field(max_length=200)


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
    project: str = Field(description="The project that the session works in.")
    role: Role
    projects: list[Membership] = Field(
        description="The projects of the user. With a token, and in a session that a token opened, only the token's "
        "project, unless the user is an administrator."
    )
    admin: bool = Field(description="Whether the user may manage users, projects and quotas.")
    expires_at: datetime | None = Field(
        description="When the session ends if it is not used. Null for a token that never ends."
    )
