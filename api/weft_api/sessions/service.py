"""Opening, switching and ending browsers' sessions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from hmac import compare_digest

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from weft_api.access.auth import Membership, Principal, find_principal, limit_of, revoke, session_expiry
from weft_api.access.passwords import check_password
from weft_api.context import Context
from weft_api.http.audited import about, acting
from weft_api.http.problems import FORBIDDEN, NOT_FOUND, UNAUTHENTICATED, Problem, not_found
from weft_api.sessions.identities import sign_in
from weft_api.sessions.links import use_link
from weft_api.sessions.oidc import PROVIDERS, Begun, Provider
from weft_api.sessions.schemas import ProviderBody, SessionBody, SessionView
from weft_core.ids import new_id
from weft_core.store.models import ActorKind, Member, Project, Token
from weft_core.store.scope import Scope
from weft_core.tokens import USER_PREFIX, hash_token, new_token

LONGEST = timedelta(days=7)
"""A session ends after this, however much it is used."""


@dataclass(frozen=True)
class OpenSession:
    cookie: str
    view: SessionView


def begin_at_provider(context: Context, name: str) -> tuple[str, str]:
    """The URL at an identity provider where the user signs in, and a sealed text that the end of the sign-in needs.

    Raises:
        Problem: not_found, provider_unavailable, too_many_sign_ins.
    """
    url, begun = _provider(context, name).begin()
    return url, begun.seal(context.box)


def open_session(context: Context, body: SessionBody, address: str, browser: str, sealed: str | None) -> OpenSession:
    """Sign a browser in.

    Args:
        address: where the request comes from.
        browser: the name of its row in the list of tokens.
        sealed: the text that :func:`begin_at_provider` has given this browser.

    Raises:
        Problem: unauthenticated, too_many_attempts; not_found for a project that the user is not a member of; forbidden
            for another project than the token's, or for a person without a role; provider_unavailable.
    """
    opened_with: Principal | None = None
    wanted = body.project
    if body.token is not None or body.link is not None:
        opened_with = _by_token_or_link(context, body)
        if opened_with.service:
            raise Problem(FORBIDDEN, f"{opened_with.user} is a service account: it works with its token only")
        user_id = opened_with.user_id
        wanted = wanted or opened_with.project
        if opened_with.bound and wanted != opened_with.project:
            raise _other_project(opened_with)
    elif body.provider is not None:
        user_id = _by_provider(context, body.provider, sealed)
    else:
        assert body.user is not None
        assert body.password is not None
        user_id = check_password(context, body.user, body.password.get_secret_value(), address).id
    plain = new_token("session")
    with context.database.transaction() as session:
        row = Token(
            id=new_id("tok"),
            user_id=user_id,
            kind="browser",
            name=browser,
            prefix=plain.prefix,
            sha256=plain.sha256,
            last_used_at=func.now(),
            ends_at=func.now() + LONGEST,
        )
        if opened_with is not None:
            row.opened_with = opened_with.token_id
            row.role = opened_with.limit
            row.budget_id = opened_with.budget
            row.ends_at = func.least(func.now() + LONGEST, limit_of(session, opened_with.token_id))
        Scope(session, _project(session, user_id, wanted)).add(row)
        session.flush()
        session.execute(update(Token).where(Token.id == row.id).values(expires_at=session_expiry()))
    principal = find_principal(context, plain.sha256)
    if principal is None:
        raise Problem(UNAUTHENTICATED, "the user was removed or disabled just now")
    about("session", principal.token_id)
    return OpenSession(plain.plain, describe(context, principal))


def _by_token_or_link(context: Context, body: SessionBody) -> Principal:
    if body.link is not None:
        return use_link(context, body.link.get_secret_value())
    assert body.token is not None
    plain = body.token.get_secret_value().strip()
    known = plain.isascii() and plain.startswith(USER_PREFIX)
    principal = find_principal(context, hash_token(plain)) if known else None
    if principal is None:
        raise Problem(UNAUTHENTICATED, "this token is unknown, expired or revoked")
    return principal


def _by_provider(context: Context, returned: ProviderBody, sealed: str | None) -> str:
    """The id of the user who has signed in at an identity provider."""
    provider = _provider(context, returned.name)
    begun = Begun.unseal(context.box, sealed or "")
    # Another browser's answer would sign this one in as another person.
    if begun.provider != returned.name or not compare_digest(begun.state.encode(), returned.state.encode()):
        raise Problem(UNAUTHENTICATED, "this browser has begun no such sign-in; sign in again")
    person = provider.finish(begun, returned.code.get_secret_value(), returned.issuer)
    user = sign_in(context.database, provider, person)
    acting(ActorKind.PROVIDER, user_id=user.id, user=user.name)
    return user.id


def _provider(context: Context, name: str) -> Provider:
    provider = PROVIDERS.of(context).get(name)
    if provider is None:
        raise Problem(NOT_FOUND, f"no identity provider {name[:100]!r}")
    return provider


def _project(session: Session, user_id: str, name: str | None) -> str:
    """The id of the project to begin in."""
    used = select(func.max(Token.last_used_at)).where(Token.project_id == Project.id, Token.user_id == user_id)
    query = (
        select(Project)
        .join(Member, (Member.project_id == Project.id) & (Member.user_id == user_id))
        .order_by(used.scalar_subquery().desc().nulls_last(), Project.name)
    )
    if name is not None:
        query = query.where(Project.name == name)
    project = session.scalars(query.limit(1)).one_or_none()
    if project is None and name is not None:
        raise not_found("project", name)
    if project is None:
        raise Problem(UNAUTHENTICATED, "you are a member of no project; ask an administrator for one")
    return project.id


def describe(context: Context, who: Principal) -> SessionView:
    """The session as the dashboard shows it."""
    with context.database.transaction() as session:
        query = select(Project.name, Member.role).join(Member, Member.project_id == Project.id)
        if who.bound:
            query = query.where(Project.id == who.project_id)
        rows = session.execute(query.where(Member.user_id == who.user_id).order_by(Project.name))
        projects = [Membership(name=name, role=who.role if who.limit else role) for name, role in rows]
        expires = session.scalar(select(Token.expires_at).where(Token.id == who.token_id))
    return SessionView(
        user=who.user,
        project=who.project,
        role=who.role,
        projects=projects,
        admin=who.admin,
        expires_at=expires,
    )


def switch(context: Context, who: Principal, name: str) -> SessionView:
    """Go on in another project. Raises Problem not_found; forbidden for a token, and a session opened with a token."""
    if who.bound or not who.session:
        raise _other_project(who)
    with context.database.transaction() as session:
        project_id = _project(session, who.user_id, name)
        about("project", name)
        session.execute(update(Token).where(Token.id == who.token_id).values(project_id=project_id))
    principal = find_principal(context, who.token_sha256)
    if principal is None:
        raise Problem(UNAUTHENTICATED, "your session has ended; sign in again")
    return describe(context, principal)


def _other_project(who: Principal) -> Problem:
    detail = f"a token, and each session that it opens, belongs to one project, this one to {who.project!r}"
    return Problem(FORBIDDEN, f"{detail}: sign in with your password, or with a token of the other project")


def end(context: Context, who: Principal) -> None:
    """Sign out. Raises Problem forbidden for a token: those are revoked by their id."""
    if not who.session:
        raise Problem(FORBIDDEN, "this is a token, not a session: DELETE /tokens/{id} revokes it")
    about("session", who.token_id)
    with context.database.transaction() as session:
        revoke(session, [who.token_id])
