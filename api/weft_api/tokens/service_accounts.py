"""Service accounts: accounts of a project for machines. They have tokens, but no password and no access to the page."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from weft_api.access.auth import RANK, Principal, revoke_all
from weft_api.context import Context
from weft_api.http.audited import about
from weft_api.http.idempotency import Once
from weft_api.http.problems import EXISTS, Problem, invalid, not_found
from weft_api.tokens.schemas import CreatedToken, NewServiceAccount, ServiceAccountView, TokenBody
from weft_api.tokens.service import issue_service_token
from weft_core.ids import new_id
from weft_core.store.models import Member, Token, User
from weft_core.store.row_security import across_projects

_KIND = "service_account"


def list_accounts(session: Session, who: Principal) -> list[ServiceAccountView]:
    """The service accounts of the caller's project, by name."""
    valid = Token.revoked_at.is_(None) & (Token.expires_at.is_(None) | (Token.expires_at > func.now()))
    tokens = select(func.count()).select_from(Token).where(Token.user_id == User.id, valid).correlate(User)
    query = (
        select(User, Member.role, tokens.scalar_subquery())
        .join(Member, Member.user_id == User.id)
        .where(User.service_of == who.project_id, Member.project_id == who.project_id)
        .order_by(User.name)
    )
    return [
        ServiceAccountView(name=_short(user.name), user=user.name, role=role, tokens=number, created_at=user.created_at)
        for user, role, number in session.execute(query)
    ]


def create_account(context: Context, who: Principal, body: NewServiceAccount, once: Once) -> ServiceAccountView:
    """Make a service account. One that was deleted comes back under its name, without its tokens.

    Raises:
        Problem: already_exists; invalid_request for a higher role than the caller's.
    """
    if not who.may(body.role):
        raise invalid("body.role", f"you are {who.role} here", accepted=f"no higher role than {who.role}")
    about(_KIND, body.name)
    with context.database.transaction() as session:
        made = new_id("usr")
        claimed = once.claim(who.scope(session), made) == made
        with across_projects(session):  # accounts are rows of users, which belong to no project
            if claimed:
                _make(session, who, made, body)
            return next(account for account in list_accounts(session, who) if account.name == body.name)


def _make(session: Session, who: Principal, user_id: str, body: NewServiceAccount) -> None:
    name = _long(who, body.name)
    user = session.scalars(select(User).where(User.name == name).with_for_update()).one_or_none()
    if user is None:
        user = User(id=user_id, name=name, service_of=who.project_id)
        session.add(user)
    elif user.disabled_at is None:
        raise Problem(EXISTS, f"a service account named {body.name!r} exists already")
    user.disabled_at = None
    session.flush()
    session.add(Member(project_id=who.project_id, user_id=user.id, role=body.role))
    session.flush()


def delete_account(session: Session, who: Principal, name: str) -> None:
    """End an account and its tokens. Its jobs keep its name. Raises Problem not_found."""
    user, member = _find(session, who, name)
    revoke_all(session, user.id)
    session.delete(member)
    user.disabled_at = func.now()


def create_token(context: Context, who: Principal, name: str, body: TokenBody, once: Once) -> CreatedToken:
    """Make a token of an account, with its role or a lower one.

    Raises:
        Problem: not_found; invalid_request for a higher role than the account's.
    """
    with context.database.transaction() as session:
        user, member = _find(session, who, name)
        # The caller's limit counts, too: a token makes none that may do more.
        most = min(member.role, who.role, key=RANK.__getitem__)
        role = body.role or most
        if RANK[role] > RANK[most]:
            raise invalid("body.role", f"the account is {member.role}", accepted=f"no higher role than {most}")
        return issue_service_token(context, session, who, user, body, role, once)


def _find(session: Session, who: Principal, name: str) -> tuple[User, Member]:
    query = (
        select(User, Member)
        .join(Member, (Member.user_id == User.id) & (Member.project_id == who.project_id))
        .where(User.name == _long(who, name), User.service_of == who.project_id)
        .with_for_update()
    )
    row = session.execute(query).one_or_none() if "\0" not in name else None
    if row is None:
        raise not_found("service account", name[:100])
    return row[0], row[1]


def _long(who: Principal, name: str) -> str:
    """The name among all users. People's names have no colon, so nobody takes an account for a person."""
    return f"service:{name}@{who.project}"


def _short(name: str) -> str:
    return name.removeprefix("service:").partition("@")[0]
