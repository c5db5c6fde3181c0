"""HTTP for browsers' sessions."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from weft_api.access.auth import COOKIE, Viewer, address_of, from_elsewhere, from_this_machine
from weft_api.context import Context, Ctx
from weft_api.http.problems import (
    CROSS_SITE,
    FORBIDDEN,
    NOT_FOUND,
    TOO_MANY_ATTEMPTS,
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
    summary="Sign a browser in",
    responses=responses(UNAUTHENTICATED, CROSS_SITE, NOT_FOUND, TOO_MANY_ATTEMPTS),
)
def post_session(body: SessionBody, context: Ctx, request: Request, response: Response) -> SessionView:
    """Sets the cookie `weft_session`, which all of the API takes in place of a token. The session ends when it was not
    used for 12 hours, and after 7 days. Every call with it that is no GET or HEAD needs `X-Weft-Session: 1`."""
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
    summary="Make a link that signs a browser in, once",
    responses=responses(FORBIDDEN),
)
def post_link(context: Ctx, who: Viewer) -> LinkView:
    """It is good for ten minutes. What it opens has the token's user and project, and ends with the token."""
    return make_link(context, who)


@router.get("/signin", summary="What helps to sign in here")
def get_sign_in(context: Ctx, request: Request) -> SignInView:
    """Needs no token."""
    file = context.settings.api.profile_file
    return SignInView(profile_file=str(file) if file and from_this_machine(request) else None)


@router.get("/session", summary="Who is signed in?")
def get_session(context: Ctx, who: Viewer) -> SessionView:
    """Answers to a token, too; 401 tells that a session has ended."""
    return service.describe(context, who)


@router.put("/session/project", summary="Go on in another project", responses=responses(FORBIDDEN, NOT_FOUND))
def put_session_project(body: ProjectBody, context: Ctx, who: Viewer) -> SessionView:
    return service.switch(context, who, body.project)


@router.delete("/session", status_code=204, summary="Sign out", responses=responses(FORBIDDEN))
def delete_session(context: Ctx, who: Viewer, request: Request, response: Response) -> None:
    service.end(context, who)
    response.delete_cookie(COOKIE, path=_PATH, secure=_secure(context, request), httponly=True, samesite="strict")
