"""HTTP for signing in and tokens."""

from __future__ import annotations

from fastapi import APIRouter, Request

from weft_api.access.auth import Viewer, address_of
from weft_api.context import Ctx
from weft_api.http.audited import audited, unaudited
from weft_api.http.idempotency import KeyHeader, once
from weft_api.http.problems import (
    ACCESS_DENIED,
    AUTHORIZATION_PENDING,
    CONFLICT,
    EXPIRED_TOKEN,
    FORBIDDEN,
    IDEMPOTENCY_CONFLICT,
    NOT_FOUND,
    SLOW_DOWN,
    TOO_MANY_ATTEMPTS,
    TOO_MANY_SIGN_INS,
    UNAUTHENTICATED,
    responses,
)
from weft_api.tokens import device, service
from weft_api.tokens.schemas import (
    ConfirmBody,
    CreatedToken,
    DeviceBody,
    DeviceCode,
    DeviceTokenBody,
    DeviceView,
    LoginBody,
    Me,
    TokenBody,
    TokenList,
)

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


@router.post(
    "/device",
    status_code=201,
    summary="Begin to sign in a program without a browser",
    responses=responses(TOO_MANY_SIGN_INS),
    openapi_extra=unaudited("nobody is signed in by it; `tokens.confirm_login` records who confirms it"),
)
def post_device(body: DeviceBody, context: Ctx, request: Request) -> DeviceCode:
    """The device flow (RFC 8628). The program shows `user_code`; its user confirms it on the page at `path`. Meanwhile,
    the program calls `POST /device/token`. This call needs no token."""
    return device.begin(context, body, address_of(request))


@router.post(
    "/device/token",
    summary="Get the token of a confirmed sign-in",
    responses=responses(AUTHORIZATION_PENDING, SLOW_DOWN, ACCESS_DENIED, EXPIRED_TOKEN),
    openapi_extra=audited("tokens.login", "token", read=True),
)
def post_device_token(body: DeviceTokenBody, context: Ctx) -> CreatedToken:
    """Until the user has confirmed the code, the answer is `authorization_pending`. The token is valid for 90 days; it
    ends with the token that opened the user's session, if one did."""
    return device.poll(context, body.device_code.get_secret_value())


@router.get("/device/{user_code}", summary="Show a program that waits", responses=responses(NOT_FOUND))
def get_device(user_code: str, context: Ctx, _: Viewer) -> DeviceView:
    return device.show(context, user_code)


@router.post(
    "/device/{user_code}/confirm",
    status_code=204,
    summary="Sign in a program that waits",
    responses=responses(NOT_FOUND, FORBIDDEN, CONFLICT),
    openapi_extra=audited("tokens.confirm_login", "device:{user_code}"),
)
def post_device_confirm(user_code: str, body: ConfirmBody, context: Ctx, who: Viewer) -> None:
    """The program gets a token with your rights in one project. Confirm only a code that a program of yours shows."""
    device.confirm(context, who, user_code, body.project)


@router.post(
    "/device/{user_code}/deny",
    status_code=204,
    summary="Refuse a program that waits",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("tokens.deny_login", "device:{user_code}"),
)
def post_device_deny(user_code: str, context: Ctx, _: Viewer) -> None:
    device.deny(context, user_code)


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
