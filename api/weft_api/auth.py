"""Who is asking: users' tokens and their roles. (Attempts' tokens open the learner's routes only: learner/auth.py.)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session
from starlette.requests import HTTPConnection

from weft_api.context import Context, Ctx
from weft_api.problems import FORBIDDEN, UNAUTHENTICATED, Problem
from weft_core.store.models import Member, Project, Token, User
from weft_core.store.scope import Scope
from weft_core.tokens import ATTEMPT_PREFIX, USER_PREFIX, hash_token

Role = Literal["viewer", "editor", "owner"]
_RANK: dict[str, int] = {"viewer": 0, "editor": 1, "owner": 2}


class _HTTPBearer(HTTPBearer):
    """FastAPI's, which reads headers only, for WebSockets too."""

    async def __call__(self, connection: HTTPConnection) -> HTTPAuthorizationCredentials | None:
        return await super().__call__(connection)


_bearer = _HTTPBearer(auto_error=False, scheme_name="token", description="A token from `weft login` or POST /tokens.")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


@dataclass(frozen=True)
class Principal:
    """A signed-in user in a project. A token belongs to one project, so that a request never has to say which."""

    token_id: str
    token_sha256: str
    user_id: str
    user: str
    project_id: str
    project: str
    role: str

    def scope(self, session: Session) -> Scope:
        return Scope(session, self.project_id)

    def may(self, role: Role) -> bool:
        return _RANK[self.role] >= _RANK[role]


def find_principal(context: Context, sha256: str) -> Principal | None:
    """Whose token this is; None when it is unknown, expired or revoked, or its user disabled or no member any more."""
    stale = (Token.last_used_at.is_(None)) | (Token.last_used_at < func.now() - text("interval '1 minute'"))
    query = (
        select(Token.id, Token.user_id, User.name, Token.project_id, Project.name, Member.role, stale)
        .join(User, User.id == Token.user_id)
        .join(Project, Project.id == Token.project_id)
        .join(Member, (Member.project_id == Token.project_id) & (Member.user_id == Token.user_id))
        .where(
            Token.sha256 == sha256,
            Token.revoked_at.is_(None),
            (Token.expires_at.is_(None)) | (Token.expires_at > func.now()),
            User.disabled_at.is_(None),
        )
    )
    with context.database.transaction() as session:
        row = session.execute(query).one_or_none()
        if row is None:
            return None
        token_id, user_id, user, project_id, project, role, unnoted = row
        if unnoted:
            # At most once a minute, so that reading is not writing.
            session.execute(update(Token).where(Token.id == token_id, stale).values(last_used_at=func.now()))
    return Principal(token_id, sha256, user_id, user, project_id, project, role)


def _authenticate(context: Ctx, bearer: Bearer) -> Principal:
    if bearer is None:
        raise Problem(UNAUTHENTICATED, "send 'Authorization: Bearer <token>' with a token of yours")
    plain = bearer.credentials
    if plain.startswith(ATTEMPT_PREFIX):
        raise Problem(UNAUTHENTICATED, "this is a learner's token: it opens /api/v1/learner/ only")
    if not plain.startswith(USER_PREFIX) or not plain.isascii():
        raise Problem(UNAUTHENTICATED, f"this is no token of Weft's: they start with {USER_PREFIX}")
    principal = find_principal(context, hash_token(plain))
    if principal is None:
        raise Problem(UNAUTHENTICATED, "this token is unknown, expired or revoked; sign in again")
    return principal


def _require(role: Role) -> Callable[[Principal], Principal]:
    def check(principal: Annotated[Principal, Depends(_authenticate)]) -> Principal:
        if not principal.may(role):
            raise Problem(
                FORBIDDEN, f"this needs the role {role}; in project {principal.project!r} you are {principal.role}"
            )
        return principal

    return check


Viewer = Annotated[Principal, Depends(_authenticate)]
Editor = Annotated[Principal, Depends(_require("editor"))]
