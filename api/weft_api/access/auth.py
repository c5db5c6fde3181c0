"""The signed-in user: users' tokens, browsers' sessions, and roles. (``attempts.py`` is about the tokens of attempts,
which are valid for the routes of learners only.)"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from fastapi import Depends
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from sqlalchemy import ColumnElement, Select, bindparam, case, func, select, text, tuple_, update
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session
from starlette.requests import HTTPConnection

from weft_api.access.rates import RATES
from weft_api.access.turns import TakesTurn
from weft_api.context import Context, Ctx
from weft_api.http.audited import acting
from weft_api.http.problems import CROSS_SITE, FORBIDDEN, UNAUTHENTICATED, Problem
from weft_core.store.models import ActorKind, Member, Project, Token, User
from weft_core.store.row_security import across_projects
from weft_core.store.scope import Scope
from weft_core.tokens import ATTEMPT_PREFIX, MLFLOW_PREFIX, SESSION_PREFIX, USER_PREFIX, hash_token

Role = Literal["viewer", "editor", "owner"]
RANK: dict[str, int] = {"viewer": 0, "editor": 1, "owner": 2}


class _HTTPBearer(HTTPBearer):
    """FastAPI's class reads headers only, so it works for WebSockets too."""

    async def __call__(self, connection: HTTPConnection) -> HTTPAuthorizationCredentials | None:
        return await super().__call__(connection)


_bearer = _HTTPBearer(auto_error=False, scheme_name="token", description="A token from `weft login` or POST /tokens.")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]

COOKIE = "weft_session"
_cookie = APIKeyCookie(
    name=COOKIE,
    auto_error=False,
    scheme_name="session",
    description="A browser's session, from POST /session. Methods other than GET and HEAD also need the header "
    "`X-Weft-Session: 1`.",
)
Cookie = Annotated[str | None, Depends(_cookie)]
SESSION_IDLE_HOURS = 12
"""A session ends when it has not been used for this time."""


class Membership(BaseModel):
    name: str
    role: Role


@dataclass(frozen=True)
class Principal:
    """A signed-in user in a project. A token belongs to one project, so requests do not name the project."""

    token_id: str
    token_sha256: str
    user_id: str
    user: str
    project_id: str
    project: str
    role: str
    admin: bool = False
    """An administrator of the whole installation: users, projects, quotas."""
    session: bool = False
    """Signed in by a browser's cookie, not by a token."""
    parent: str | None = None
    """The id of the token that ends everything the caller creates: the caller's own, or the one that opened the
    session. None for a caller who gave a password."""
    service: bool = False
    """A service account of the project, not a person."""
    limit: str | None = None
    """The highest role for the caller and for everything that the caller creates; ``role`` is no higher. None: all that
    the user may do."""
    budget: str | None = None
    """The id of the budget to which the caller's jobs are charged; its tokens have the same. None: no budget."""
    caps: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The caps on the project's members, by role."""
    password_mark: str = field(default="", repr=False)
    """For a caller who gave a password: stands for the password, and changes with it."""
    address: str = field(default="", compare=False, repr=False)
    """The client's."""

    def scope(self, session: Session) -> Scope:
        return Scope(session, self.project_id)

    @property
    def caller(self) -> str:
        """The id of the token, or of the user who signs in with a password: one limit, however it is sent."""
        return self.token_id or self.user_id

    @property
    def bound(self) -> bool:
        """Whether a token binds the caller to one project. An administrator's token manages all projects anyway."""
        return self.parent is not None and not self.admin

    def may(self, role: Role) -> bool:
        return RANK[self.role] >= RANK[role]


def find_principal(context: Context, sha256: str) -> Principal | None:
    """The user of a token.

    None when the token is unknown, expired or revoked, or its user is disabled or no longer a member of the project.
    """
    with context.database.autocommit() as connection:
        row = connection.execute(_of_a_token(), {"sha256": sha256}).one_or_none()
        if row is None:
            return None
        token_id, user_id, user, project_id, project, role, unnoted, admin, kind, opened_with, limit, *rest = row
        service_of, caps, budget = rest
        if unnoted:
            _note_use(connection, [sha256])
    browser = kind == "browser"
    parent = opened_with if browser else token_id
    how = ActorKind.SESSION if browser else ActorKind.TOKEN
    acting(how, user_id=user_id, user=user, token_id=token_id, project=(project_id, project))
    if limit is not None:
        role, admin = min(role, limit, key=RANK.__getitem__), False
    admin = admin and budget is None
    service = service_of is not None
    return Principal(
        token_id,
        sha256,
        user_id,
        user,
        project_id,
        project,
        role,
        admin,
        browser,
        parent,
        service=service,
        limit=limit,
        budget=budget,
        caps=caps,
    )


@functools.cache
def _of_a_token() -> Select[Any]:
    """Built once: the parts of the statement took a fifth of the time of `find_principal`, which each request needs."""
    return (
        select(Token.id, Token.user_id, User.name, Token.project_id, Project.name, Member.role, _unnoted())
        .add_columns(User.is_admin, Token.kind, Token.opened_with, Token.role, User.service_of, Project.caps)
        .add_columns(Token.budget_id)
        .join(User, User.id == Token.user_id)
        .join(Project, Project.id == Token.project_id)
        .join(Member, (Member.project_id == Token.project_id) & (Member.user_id == Token.user_id))
        .where(Token.sha256 == bindparam("sha256"), *_valid())
    )


def find_member(context: Context, user_id: str, project_id: str, password_hash: str) -> Principal | None:
    """A user who signs in with a password instead of a token.

    None if disabled, not a member of the project, or if the password is no longer the one with this hash.
    """
    query = (
        select(User.name, Project.name, Member.role, User.is_admin, Project.caps)
        .join(Member, Member.user_id == User.id)
        .join(Project, Project.id == Member.project_id)
        .where(User.id == user_id, Project.id == project_id, User.disabled_at.is_(None))
        .where(User.password_hash == password_hash)
    )
    with context.database.autocommit() as connection:
        row = connection.execute(query).one_or_none()
    if row is None:
        return None
    acting(ActorKind.PASSWORD, user_id=user_id, user=row[0], project=(project_id, row[1]))
    mark = hash_token(password_hash)
    return Principal("", "", user_id, row[0], project_id, row[1], row[2], row[3], caps=row[4], password_mark=mark)


def still_signed_in(context: Context, people: Collection[Principal]) -> set[Principal]:
    """Those of ``people`` who are still signed in. This counts as a use of their tokens."""
    hashes = {who.token_sha256 for who in people if who.token_sha256}
    by_password = {(who.user_id, who.project_id) for who in people if not who.token_sha256}
    tokens = (
        select(Token.sha256, _unnoted())
        .join(User, User.id == Token.user_id)
        .join(Member, (Member.project_id == Token.project_id) & (Member.user_id == Token.user_id))
        .where(Token.sha256.in_(hashes), *_valid())
    )
    members = (
        select(Member.user_id, Member.project_id, User.password_hash)
        .join(User, User.id == Member.user_id)
        .where(tuple_(Member.user_id, Member.project_id).in_(by_password), User.disabled_at.is_(None))
    )
    with context.database.transaction() as session:
        unnoted = dict(session.execute(tokens).all()) if hashes else {}
        rows = session.execute(members).all() if by_password else []
        if any(unnoted.values()):
            _note_use(session, list(unnoted))
    found = {(user_id, project_id, hash_token(password_hash or "")) for user_id, project_id, password_hash in rows}
    return {
        who
        for who in people
        if (
            who.token_sha256 in unnoted
            if who.token_sha256
            else (who.user_id, who.project_id, who.password_mark) in found
        )
    }


def _valid() -> list[ColumnElement[bool]]:
    """Conditions on Token and User."""
    unexpired = (Token.expires_at.is_(None)) | (Token.expires_at > func.now())
    return [Token.revoked_at.is_(None), unexpired, User.disabled_at.is_(None)]


def _unnoted() -> ColumnElement[bool]:
    """Uses of a token are written at most once a minute, so that most reads write nothing."""
    return (Token.last_used_at.is_(None)) | (Token.last_used_at < func.now() - text("interval '1 minute'"))


def _note_use(session: Session | Connection, hashes: Sequence[str]) -> None:
    later = case((Token.kind == "browser", session_expiry()), else_=Token.expires_at)
    used = update(Token).where(Token.sha256.in_(hashes), _unnoted())
    session.execute(used.values(last_used_at=func.now(), expires_at=later))


def revoke_all(session: Session, user_id: str, project_id: str | None = None) -> None:
    """End the user's tokens and sessions, in all projects or in one, and all that were opened or created with them."""
    theirs = select(Token.id).where(Token.user_id == user_id, Token.revoked_at.is_(None))
    if project_id is not None:
        theirs = theirs.where(Token.project_id == project_id)
    revoke(session, session.scalars(theirs).all())


def revoke(session: Session, token_ids: Sequence[str]) -> None:
    """End tokens and sessions immediately, and all that were opened or created with them."""
    with across_projects(session):  # an administrator's token opens sessions in other projects, too
        while token_ids:
            # The update waits for a transaction that makes a child (`limit_of`), so the next query finds that child.
            ended = update(Token).where(Token.id.in_(token_ids), Token.revoked_at.is_(None))
            session.execute(ended.values(revoked_at=func.now()))
            token_ids = session.scalars(select(Token.id).where(Token.opened_with.in_(token_ids))).all()


def limit_of(session: Session, parent: str) -> datetime | None:
    """When the token ``parent`` expires: its children end then at the latest. It can't be revoked meanwhile.

    Raises:
        Problem: unauthenticated when the token has been revoked.
    """
    query = select(Token.expires_at).where(Token.id == parent, Token.revoked_at.is_(None))
    with across_projects(session):  # an administrator's may be of another project
        row = session.execute(query.with_for_update(read=True)).one_or_none()
    if row is None:
        raise Problem(UNAUTHENTICATED, "this token was revoked just now; sign in again")
    limit: datetime | None = row[0]
    return limit


def session_expiry() -> ColumnElement[datetime]:
    """When a session that is used now expires."""
    return func.least(Token.ends_at, func.now() + timedelta(hours=SESSION_IDLE_HOURS))


def address_of(connection: HTTPConnection) -> str:
    """The address of the client. uvicorn takes it from a proxy only if it trusts the proxy."""
    return connection.client.host if connection.client else ""


def from_this_machine(connection: HTTPConnection) -> bool:
    """Whether the request comes from the machine that answers it."""
    address, server = address_of(connection), connection.scope.get("server")
    try:
        return ip_address(address).is_loopback or (server is not None and server[0] == address)
    except ValueError:
        return False


def from_elsewhere(context: Context, connection: HTTPConnection) -> bool:
    """Whether a page of another origin makes this request, according to the browser's headers."""
    origin = connection.headers.get("origin")
    if origin is None:
        return False
    public = urlsplit(context.settings.api.public_url)
    ours = {connection.headers.get("host", "").lower(), public.netloc.lower()}
    return urlsplit(origin).netloc.lower() not in ours


def _by_session(context: Context, connection: HTTPConnection, plain: str) -> Principal:
    known = plain.isascii() and plain.startswith(SESSION_PREFIX)
    principal = find_principal(context, hash_token(plain)) if known else None
    if principal is None:
        raise Problem(UNAUTHENTICATED, "your session has ended; sign in again")
    if connection.scope["type"] == "websocket":
        # Browsers let any page open a WebSocket to any server, but they send the origin of the page.
        if "origin" not in connection.headers or from_elsewhere(context, connection):
            raise Problem(CROSS_SITE, "a WebSocket by a session's cookie is opened by this server's own pages only")
    elif connection.scope["method"] not in {"GET", "HEAD"} and connection.headers.get("x-weft-session") != "1":
        # A page of another origin can send its own headers only after the browser has asked this server for permission.
        raise Problem(CROSS_SITE, "a change by a session's cookie needs the header X-Weft-Session: 1")
    return principal


def _authenticate(
    turn: TakesTurn, connection: HTTPConnection, context: Ctx, bearer: Bearer, cookie: Cookie
) -> Principal:
    if bearer is None and cookie and "authorization" not in connection.headers:
        who = _by_session(context, connection, cookie)
    elif bearer is None:
        raise Problem(UNAUTHENTICATED, "send 'Authorization: Bearer <token>' with a token of yours")
    else:
        who = by_token(context, bearer.credentials)
    turn.accepted(who.caller)
    return within_rate(context, replace(who, address=address_of(connection)))


def within_rate(context: Context, who: Principal) -> Principal:
    """``who``, unless requests with this token come too fast: then raises Problem too_many_requests."""
    RATES.of(context).check_user(who.caller)
    return who


def by_token(context: Context, plain: str) -> Principal:
    """The user of a token. Raises Problem unauthenticated."""
    if plain.startswith(ATTEMPT_PREFIX):
        raise Problem(UNAUTHENTICATED, "this is a learner's token: it opens /api/v1/learner/ only")
    if plain.startswith(MLFLOW_PREFIX):
        raise Problem(UNAUTHENTICATED, "this is a learner's token for MLflow: it opens /api/2.0/mlflow/ only")
    if not plain.startswith(USER_PREFIX) or not plain.isascii():
        raise Problem(UNAUTHENTICATED, f"this is no token of Weft's: they start with {USER_PREFIX}")
    principal = find_principal(context, hash_token(plain))
    if principal is None:
        raise Problem(UNAUTHENTICATED, "this token is unknown, expired or revoked; sign in again")
    return principal


def _require(role: Role) -> Callable[[Principal], Awaitable[Principal]]:
    # A coroutine, so that it needs no thread.
    async def check(principal: Annotated[Principal, Depends(_authenticate)]) -> Principal:
        if not principal.may(role):
            raise Problem(
                FORBIDDEN, f"this needs the role {role}; in project {principal.project!r} you are {principal.role}"
            )
        return principal

    return check


Viewer = Annotated[Principal, Depends(_authenticate)]
Editor = Annotated[Principal, Depends(_require("editor"))]
Owner = Annotated[Principal, Depends(_require("owner"))]


async def _administrator(principal: Viewer) -> Principal:
    if not principal.admin:
        raise Problem(FORBIDDEN, "this is for administrators of the installation")
    return principal


Admin = Annotated[Principal, Depends(_administrator)]
