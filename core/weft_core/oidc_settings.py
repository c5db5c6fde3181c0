"""Settings of the identity providers by which users sign in."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator


class OidcSettings(BaseModel):
    """An identity provider (OpenID Connect) by which users sign in (docs/sign-in.md)."""

    model_config = ConfigDict(extra="forbid")

    issuer: str
    """The URL of the provider, as its ID tokens name it (``iss``). The service reads
    ``/.well-known/openid-configuration`` below it."""
    client_id: str = Field(min_length=1)
    """The name under which the provider knows Weft. Its redirect URI is ``PUBLIC_URL/signin/NAME``."""
    client_secret: SecretStr = SecretStr("")
    """The secret that belongs to ``client_id``. Empty: the provider knows Weft as a public client."""
    title: str = Field("", max_length=60)
    """The text of the button on the sign-in page: "Sign in with TITLE"; default: the name of the section."""
    scopes: list[str] = Field(default_factory=lambda: ["openid", "profile", "email"])
    """The scopes that Weft asks for; default: ``openid``, ``profile``, ``email``. Some providers send groups only with
    a scope of their own, such as ``groups``."""
    name_claim: str = "preferred_username"
    """The claim that a new user's name is made of."""
    groups_claim: str = "groups"
    """The claim that lists a user's groups: texts."""
    groups: dict[str, dict[str, Literal["viewer", "editor", "owner"]]] = Field(default_factory=dict)
    """The roles that a group has in projects, by the group's name and the project's. A person with none of these groups
    gets no access."""

    @field_validator("issuer")
    @classmethod
    def _url(cls, value: str) -> str:
        if not value.startswith(("https://", "http://")):
            raise ValueError("expected a URL such as https://login.example.com")
        return value

    @field_validator("scopes")
    @classmethod
    def _openid(cls, value: list[str]) -> list[str]:
        if "openid" not in value:
            raise ValueError("expected `openid` among them: without it, the provider sends no ID token")
        return value
