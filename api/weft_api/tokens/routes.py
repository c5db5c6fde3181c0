"""HTTP for signing in and tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from weft_api.access.auth import Owner, Viewer, address_of
from weft_api.context import Ctx
from weft_api.http.audited import audited, unaudited
from weft_api.http.idempotency import KeyHeader, once
from weft_api.http.problems import (
    ACCESS_DENIED,
    AUTHORIZATION_PENDING,
    CONFLICT,
    EXISTS,
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
from weft_api.tokens import device, service, service_accounts
from weft_api.tokens.schemas import (
    ConfirmBody,
    CreatedToken,
    DeviceBody,
    DeviceCode,
    DeviceTokenBody,
    DeviceView,
    LoginBody,
    Me,
    NewServiceAccount,
    ServiceAccountList,
    ServiceAccountView,
    TokenBody,
    TokenList,
)

router = APIRouter(prefix="/api/v1", tags=["tokens"])
AccountName = Annotated[str, Path(max_length=100, examples=["ci"])]


@router.get("/me", summary="Show your user, project and role")
def me(context: Ctx, who: Viewer) -> Me:
    budget = None
    if who.budget is not None:
        with context.database.transaction() as session:
            budget = service.budgets_of(who.scope(session), [who.budget]).get(who.budget)
    return Me(user=who.user, project=who.project, role=who.role, budget=budget)


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
    the program calls `POST /device:token`. This call needs no token."""
    return device.begin(context, body, address_of(request))


@router.post(
    "/device:token",
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
    summary="Create a token with your own rights, or fewer",
    responses=responses(IDEMPOTENCY_CONFLICT),
    openapi_extra=audited("tokens.create", "token"),
)
def post_token(body: TokenBody, context: Ctx, who: Viewer, key: KeyHeader = None) -> CreatedToken:
    """A token that is created with a token, or in a session that a token opened, ends with that token. Without
    `expires_in_days`, or with more days than are left of that token, it expires at the same time."""
    request = once(context.settings, key, "POST /tokens", [who.user_id, body.model_dump()])
    return service.create_token(context, who, body, request)


@router.get("/service-accounts", summary="List the project's service accounts")
def get_service_accounts(context: Ctx, who: Viewer) -> ServiceAccountList:
    with context.database.transaction() as session:
        return ServiceAccountList(service_accounts=service_accounts.list_accounts(session, who))


@router.post(
    "/service-accounts",
    status_code=201,
    summary="Create a service account (owners)",
    responses=responses(FORBIDDEN, EXISTS, IDEMPOTENCY_CONFLICT),
    openapi_extra=audited("service_accounts.create", "service_account"),
)
def post_service_account(
    body: NewServiceAccount, context: Ctx, who: Owner, key: KeyHeader = None
) -> ServiceAccountView:
    """An account of the project for machines, such as a CI. It has tokens, no password, and no access to the page."""
    request = once(context.settings, key, "POST /service-accounts", body.model_dump())
    return service_accounts.create_account(context, who, body, request)


@router.delete(
    "/service-accounts/{name}",
    status_code=204,
    summary="Delete a service account (owners)",
    responses=responses(FORBIDDEN, NOT_FOUND),
    openapi_extra=audited("service_accounts.delete", "service_account:{name}"),
)
def delete_service_account(name: AccountName, context: Ctx, who: Owner) -> None:
    """Its tokens end at once, and streams that it has open within 5 s."""
    with context.database.transaction() as session:
        service_accounts.delete_account(session, who, name)


@router.post(
    "/service-accounts/{name}/tokens",
    status_code=201,
    summary="Create a token of a service account (owners)",
    responses=responses(FORBIDDEN, NOT_FOUND, IDEMPOTENCY_CONFLICT),
    openapi_extra=audited("service_accounts.create_token", "token"),
)
def post_service_token(
    name: AccountName, body: TokenBody, context: Ctx, who: Owner, key: KeyHeader = None
) -> CreatedToken:
    """A token that is created with a token, or in a session that a token opened, ends with that token."""
    parts = [who.user_id, name, body.model_dump()]
    return service_accounts.create_token(
        context, who, name, body, once(context.settings, key, "POST /service-accounts/tokens", parts)
    )


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
