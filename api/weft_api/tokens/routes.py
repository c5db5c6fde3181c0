"""HTTP for signing in and tokens."""

from __future__ import annotations

from fastapi import APIRouter, Request

from weft_api.access.auth import Viewer, address_of
from weft_api.context import Ctx
from weft_api.http.audited import audited
from weft_api.http.idempotency import KeyHeader, once
from weft_api.http.problems import (
    IDEMPOTENCY_CONFLICT,
    NOT_FOUND,
    TOO_MANY_ATTEMPTS,
    TOO_MANY_SIGN_INS,
    UNAUTHENTICATED,
    responses,
)
from weft_api.tokens import service
from weft_api.tokens.schemas import CreatedToken, LoginBody, Me, TokenBody, TokenList

router = APIRouter(prefix="/api/v1", tags=["tokens"])


@router.get("/me", summary="Show your user, project and role")
def me(who: Viewer) -> Me:
    return Me(user=who.user, project=who.project, role=who.role)


@router.post(
    "/login",
    summary="Exchange a password for a token",
    responses=responses(UNAUTHENTICATED, TOO_MANY_ATTEMPTS, TOO_MANY_SIGN_INS),
    openapi_extra=audited("tokens.login", "token"),
)
def login(body: LoginBody, context: Ctx, request: Request) -> CreatedToken:
    """The token is valid for 90 days. The call takes no Idempotency-Key, so each call creates another token."""
    return service.login(context, body, address_of(request))


@router.get("/tokens", summary="List tokens")
def get_tokens(context: Ctx, who: Viewer) -> TokenList:
    with context.database.transaction() as session:
        return TokenList(tokens=service.list_tokens(who.scope(session), who))


@router.post(
    "/tokens",
    status_code=201,
    summary="Create a token with your own rights",
    responses=responses(IDEMPOTENCY_CONFLICT),
    openapi_extra=audited("tokens.create", "token"),
)
def post_token(body: TokenBody, context: Ctx, who: Viewer, key: KeyHeader = None) -> CreatedToken:
    """A token that is created with a token, or in a session that a token opened, ends with that token. Without
    `expires_in_days`, or with more days than are left of that token, it expires at the same time."""
    request = once(context.settings, key, "POST /tokens", [who.user_id, body.model_dump()])
    return service.create_token(context, who, body, request)


@router.delete(
    "/tokens/{token_id}",
    status_code=204,
    summary="Revoke a token",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("tokens.revoke", "token:{token_id}"),
)
def delete_token(token_id: str, context: Ctx, who: Viewer) -> None:
    with context.database.transaction() as session:
        service.revoke_token(who.scope(session), who, token_id)
