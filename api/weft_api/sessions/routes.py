"""HTTP for browsers' sessions."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from weft_api.access.auth import COOKIE, Viewer, address_of, from_elsewhere, from_this_machine
from weft_api.context import Context, Ctx
from weft_api.http.audited import audited, unaudited
from weft_api.http.problems import (
    CROSS_SITE,
    FORBIDDEN,
    NOT_FOUND,
    PROVIDER_UNAVAILABLE,
    TOO_MANY_ATTEMPTS,
    TOO_MANY_SIGN_INS,
    UNAUTHENTICATED,
    Problem,
    responses,
)
from weft_api.sessions import service
from weft_api.sessions.devices import device_of
from weft_api.sessions.links import make_link
from weft_api.sessions.oidc import LIFETIME
from weft_api.sessions.schemas import (
    LinkView,
    ProjectBody,
    ProviderName,
    ProviderUrl,
    ProviderView,
    SessionBody,
    SessionView,
    SignInView,
)

router = APIRouter(prefix="/api/v1", tags=["sessions"])

_PATH = "/api/v1"
_BEGUN = "weft_sign_in"
"""The cookie of a sign-in that a browser has begun at an identity provider."""
_BEGUN_PATH = "/api/v1/session"


def _secure(context: Context, request: Request) -> bool:
    api = context.settings.api
    if api.secure_cookie is not None:
        return api.secure_cookie
    return request.url.scheme == "https" or api.public_url.lower().startswith("https:")


@router.post(
    "/session",
    summary="Sign in a browser",
    responses=responses(
        UNAUTHENTICATED,
        FORBIDDEN,
        CROSS_SITE,
        NOT_FOUND,
        TOO_MANY_ATTEMPTS,
        TOO_MANY_SIGN_INS,
        PROVIDER_UNAVAILABLE,
    ),
    openapi_extra=audited("sessions.open", "session"),
)
def post_session(body: SessionBody, context: Ctx, request: Request, response: Response) -> SessionView:
    """The answer sets the cookie `weft_session`, which the whole API accepts in place of a token. The session ends when
    it is not used for 12 hours, and after 7 days at the latest. A session that a token opened belongs to the token's
    project and ends with the token. With the cookie, every call other than GET and HEAD
    needs the header `X-Weft-Session: 1`."""
    if from_elsewhere(context, request):
        raise Problem(CROSS_SITE, "sign in on this server's own page")
    browser = device_of(request.headers)
    sealed = request.cookies.get(_BEGUN)
    opened = service.open_session(context, body, address_of(request), browser, sealed)
    if body.provider is not None:
        response.delete_cookie(_BEGUN, path=_BEGUN_PATH)
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
    "/session/provider",
    summary="Begin to sign in at an identity provider",
    responses=responses(CROSS_SITE, NOT_FOUND, TOO_MANY_SIGN_INS, PROVIDER_UNAVAILABLE),
    openapi_extra=unaudited("nobody is signed in by it; `sessions.open` records the end of the sign-in"),
)
def post_session_provider(body: ProviderName, context: Ctx, request: Request, response: Response) -> ProviderUrl:
    """The provider sends the browser back to `/signin/NAME`. That page ends the sign-in with `POST /session`, which
    needs the cookie that this call sets, within 15 minutes. This call needs no token."""
    if from_elsewhere(context, request):
        raise Problem(CROSS_SITE, "sign in on this server's own page")
    url, sealed = service.begin_at_provider(context, body.name)
    response.set_cookie(
        _BEGUN,
        sealed,
        max_age=LIFETIME,
        path=_BEGUN_PATH,
        secure=_secure(context, request),
        httponly=True,
        samesite="strict",
    )
    return ProviderUrl(url=url)


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
    providers = context.settings.oidc.items()
    return SignInView(
        providers=[ProviderView(name=name, title=provider.title or name) for name, provider in providers],
        profile_file=str(file) if file and from_this_machine(request) else None,
    )


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
