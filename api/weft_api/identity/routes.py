"""HTTP for the verifiers of learners' identity tokens. Anybody may read these documents."""

from __future__ import annotations

from fastapi import APIRouter, Response

from weft_api.access.identity_tokens import issuer_url, published_keys
from weft_api.context import Ctx
from weft_api.http.problems import NOT_FOUND, responses
from weft_api.identity.schemas import IssuerView, KeySet
from weft_core.store.signing_keys import ALGORITHM

router = APIRouter(prefix="/.well-known", tags=["identity"], responses=responses(NOT_FOUND))

_CACHED = "public, max-age=3600"
"""Much shorter than a key is published before it signs."""


@router.get("/openid-configuration", summary="Describe the issuer of identity tokens")
def openid_configuration(context: Ctx, response: Response) -> IssuerView:
    """404, if the installation issues none (setting `identity.issuer`)."""
    issuer = issuer_url(context)
    response.headers["Cache-Control"] = _CACHED
    return IssuerView(
        issuer=issuer,
        jwks_uri=f"{issuer}/.well-known/jwks.json",
        id_token_signing_alg_values_supported=[ALGORITHM],
    )


@router.get("/jwks.json", summary="Get the keys that verify identity tokens")
def jwks(context: Ctx, response: Response) -> KeySet:
    keys = published_keys(context)
    response.headers["Cache-Control"] = _CACHED
    return KeySet(keys=keys)
