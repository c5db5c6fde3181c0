"""HTTP for browsers' sessions."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from weft_api.access.auth import COOKIE, Viewer, address_of, from_elsewhere, from_this_machine
from weft_api.context import Context, Ctx
from weft_api.http.audited import audited
from weft_api.http.problems import (
    CROSS_SITE,
    FORBIDDEN,
    NOT_FOUND,
    TOO_MANY_ATTEMPTS,
    TOO_MANY_SIGN_INS,
    UNAUTHENTICATED,
    Problem,
    responses,
)
from weft_api.sessions import service
from weft_api.sessions.links import make_link
from weft_api.sessions.schemas import LinkView, ProjectBody, SessionBody, SessionView, SignInView

router = APIRouter(prefix="/api/v1", tags=["sessions"])

_PATH = "/api/v1"


def _secure(context: Context, request: Request) -> bool:
    api = context.settings.api
    if api.secure_cookie is not None:
        return api.secure_cookie
    return request.url.scheme == "https" or api.public_url.lower().startswith("https:")


@router.post(
    "/session",
    summary="Sign in a browser",
    responses=responses(UNAUTHENTICATED, FORBIDDEN, CROSS_SITE, NOT_FOUND, TOO_MANY_ATTEMPTS, TOO_MANY_SIGN_INS),
    openapi_extra=audited("sessions.open", "session"),
)
def post_session(body: SessionBody, context: Ctx, request: Request, response: Response) -> SessionView:
    """The answer sets the cookie `weft_session`, which the whole API accepts in place of a token. The session ends when
    it is not used for 12 hours, and after 7 days at the latest. A session that a token opened belongs to the token's
    project and ends with the token. With the cookie, every call other than GET and HEAD
    needs the header `X-Weft-Session: 1`."""
    if from_elsewhere(context, request):
        raise Problem(CROSS_SITE, "sign in on this server's own page")
    browser = request.headers.get("user-agent", "")[:100] or "browser"
    opened = service.open_session(context, body, address_of(request), browser)
    response.set_cookie(
        COOKIE,
        opened.cookie,
        max_age=int(service.LONGEST.total_seconds()),
        path=_PATH,
        secure=_secure(context, request),
        httponly=True,
        samesite="strict",
    )
    return opened.view


@router.post(
    "/session/links",
    status_code=201,
    summary="Create a link that signs in a browser once",
    responses=responses(FORBIDDEN),
    openapi_extra=audited("sessions.create_link"),
)
def post_link(context: Ctx, who: Viewer) -> LinkView:
    """The link is valid for ten minutes. Its session has the user and the project of the token, and ends with the
    token."""
    return make_link(context, who)


@router.get("/signin", summary="Get hints for signing in")
def get_sign_in(context: Ctx, request: Request) -> SignInView:
    """This call needs no token."""
    file = context.settings.api.profile_file
    return SignInView(profile_file=str(file) if file and from_this_machine(request) else None)


@router.get("/session", summary="Show the signed-in user")
def get_session(context: Ctx, who: Viewer) -> SessionView:
    """The call also works with a token. 401 means that the session has ended."""
    return service.describe(context, who)


@router.put(
    "/session/project",
    summary="Switch to another project",
    responses=responses(FORBIDDEN, NOT_FOUND),
    openapi_extra=audited("sessions.switch_project"),
)
def put_session_project(body: ProjectBody, context: Ctx, who: Viewer) -> SessionView:
    """Only a session that a password opened can switch, or a session of an administrator."""
    return service.switch(context, who, body.project)


@router.delete(
    "/session",
    status_code=204,
    summary="Sign out",
    responses=responses(FORBIDDEN),
    openapi_extra=audited("sessions.end", "session"),
)
def delete_session(context: Ctx, who: Viewer, request: Request, response: Response) -> None:
    service.end(context, who)
    response.delete_cookie(COOKIE, path=_PATH, secure=_secure(context, request), httponly=True, samesite="strict")
