"""HTTP for users."""

from __future__ import annotations

from fastapi import APIRouter, Request

from weft_api.access.auth import Admin, Viewer, address_of
from weft_api.context import Ctx
from weft_api.http.audited import audited, must_record
from weft_api.http.idempotency import KeyHeader, once
from weft_api.http.problems import (
    CONFLICT,
    EXISTS,
    FORBIDDEN,
    IDEMPOTENCY_CONFLICT,
    NOT_FOUND,
    TOO_MANY_ATTEMPTS,
    TOO_MANY_SIGN_INS,
    responses,
)
from weft_api.users import service
from weft_api.users.schemas import NewUser, UserChange, UserList, UserName, UserView

router = APIRouter(prefix="/api/v1", tags=["users"])


@router.get(
    "/users",
    summary="List users (administrators)",
    responses=responses(FORBIDDEN),
    openapi_extra=audited("users.list", read=True, installation=True),
)
def get_users(context: Ctx, _: Admin) -> UserList:
    must_record()
    with context.database.transaction() as session:
        return UserList(users=service.list_users(session))


@router.post(
    "/users",
    status_code=201,
    summary="Create a user (administrators)",
    responses=responses(FORBIDDEN, EXISTS, IDEMPOTENCY_CONFLICT, TOO_MANY_SIGN_INS),
    openapi_extra=audited("users.create", "user", installation=True),
)
def post_user(body: NewUser, context: Ctx, who: Admin, key: KeyHeader = None) -> UserView:
    """A new user can do nothing before becoming a member of a project."""
    parts = [body.model_dump(), body.password.get_secret_value() if body.password else None]
    return service.create_user(context, who, body, once(context.settings, key, "POST /users", parts))


@router.patch(
    "/users/{name}",
    summary="Change a user (administrators), or your own password",
    responses=responses(FORBIDDEN, NOT_FOUND, CONFLICT, TOO_MANY_ATTEMPTS, TOO_MANY_SIGN_INS),
    openapi_extra=audited("users.change", "user:{name}", installation=True),
)
def patch_user(name: UserName, body: UserChange, context: Ctx, who: Viewer, request: Request) -> UserView:
    """A new password ends the user's other sessions; with `end_tokens`, also all tokens. Disabling a user ends all of
    them for good: after `disabled: false`, the user signs in again."""
    return service.change_user(context, who, name, body, address_of(request))
