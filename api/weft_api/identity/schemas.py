"""The issuer's documents on the wire, in the names of OpenID Connect Discovery and RFC 7517."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_ISSUER = "https://weft.example.com"


class IssuerView(BaseModel):
    """OpenID Connect Discovery 1.0, section 3."""

    model_config = ConfigDict(
        title="OpenIDConfiguration",
        json_schema_extra={
            "examples": [
                {
                    "issuer": _ISSUER,
                    "jwks_uri": f"{_ISSUER}/.well-known/jwks.json",
                    "response_types_supported": ["id_token"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                    "claims_supported": ["iss", "sub", "aud", "exp", "iat", "nbf", "jti", "weft"],
                }
            ]
        },
    )

    issuer: str
    jwks_uri: str
    response_types_supported: list[str] = ["id_token"]
    subject_types_supported: list[str] = ["public"]
    id_token_signing_alg_values_supported: list[str]
    claims_supported: list[str] = ["iss", "sub", "aud", "exp", "iat", "nbf", "jti", "weft"]


class KeySet(BaseModel):
    """A JWK set (RFC 7517)."""

    model_config = ConfigDict(
        title="KeySet",
        json_schema_extra={
            "examples": [{"keys": [{"kty": "RSA", "kid": "3f1…", "use": "sig", "alg": "RS256", "n": "…", "e": "AQAB"}]}]
        },
    )

    keys: list[dict[str, Any]] = Field(description="The public keys: those that sign now, signed lately or sign next.")
