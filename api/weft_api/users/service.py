"""Keeping users."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from weft_api.access.auth import Membership, Principal, revoke_all
from weft_api.access.passwords import check_password, hash_new
from weft_api.context import Context
from weft_api.http.audited import about
from weft_api.http.idempotency import Once
from weft_api.http.problems import CONFLICT, EXISTS, FORBIDDEN, NOT_FOUND, Problem, invalid
from weft_api.users.schemas import NewUser, UserChange, UserView
from weft_core.ids import new_id
from weft_core.store.models import Member, Project, Token, User
from weft_core.store.row_security import across_projects


def list_users(session: Session) -> list[UserView]:
    """All people of the installation, by name."""
    people = select(User).where(User.service_of.is_(None)).order_by(User.name)
    return _views(session, session.scalars(people).all())


def create_user(context: Context, who: Principal, body: NewUser, once: Once) -> UserView:
    """Raises Problem already_exists, or invalid_request for a password that is easy to guess."""
    about("user", body.name)
    with context.database.transaction() as session:
        taken = _find(session, body.name) is not None
    # Argon2 is slow by design. A name that is taken, or a request that is repeated, needs no hash.
    hashed = hash_new(context, body.password.get_secret_value(), body.name) if body.password and not taken else None
    with context.database.transaction() as session:
        made = new_id("usr")
        claimed = once.claim(who.scope(session), made) == made
        with across_projects(session):
            if claimed:
                if taken or _find(session, body.name):
                    raise Problem(EXISTS, f"a user named {body.name!r} exists already")
                session.add(User(id=made, name=body.name, email=body.email, password_hash=hashed, is_admin=body.admin))
                session.flush()
            return _views(session, [_get(session, body.name)])[0]


def change_user(context: Context, who: Principal, name: str, body: UserChange, address: str) -> UserView:
    """Change what ``body`` names. An administrator may change everyone; others their own password only.

    Raises:
        Problem: not_found, also for the name of another user; forbidden; unauthenticated for a wrong password;
            invalid_request for a password that is easy to guess; conflict when no administrator would be left.
    """
    own = name == who.user
    if not own and not who.admin:
        raise _unknown(name)
    if not who.admin and (body.disabled is not None or body.admin is not None):
        raise Problem(FORBIDDEN, "only an administrator may change that; you may change your password")
    if own and body.password is not None:
        _check_current(context, who, name, body, address)
    hashed = hash_new(context, body.password.get_secret_value(), name) if body.password else None
    with context.database.transaction() as session:
        user = _get(session, name)
        if body.disabled or body.admin is False:
            _another_admin(session, user)
        if body.disabled is not None and body.disabled != (user.disabled_at is not None):
            user.disabled_at = func.now() if body.disabled else None
            if body.disabled:
                revoke_all(session, user.id)
        if body.admin is not None:
            user.is_admin = body.admin
        if hashed:
            user.password_hash = hashed
            _end_sessions(session, user.id, but=who.token_id)
            if body.end_tokens:
                revoke_all(session, user.id)
        session.flush()
        session.refresh(user)
        return _views(session, [user])[0]


def _check_current(context: Context, who: Principal, name: str, body: UserChange, address: str) -> None:
    """The old password is required, so that a person at a browser that was left open can't take the account over."""
    with context.database.transaction() as session:
        has_one = _get(session, name).password_hash is not None
    if not has_one:
        # A token opens one project, and an identity provider controls the access. A password would do neither.
        if not who.admin:
            raise Problem(FORBIDDEN, "you have no password yet: ask an administrator to set the first")
        return
    if body.current_password is None:
        raise invalid("body.current_password", "needed to change your own password")
    check_password(context, name, body.current_password.get_secret_value(), address)


def _another_admin(session: Session, user: User) -> None:
    """Raises Problem conflict if no other administrator would remain."""
    # Locked, in the order of ids, so that an administrator remains when two remove each other.
    admins = select(User.id).where(User.is_admin, User.disabled_at.is_(None)).order_by(User.id).with_for_update()
    if session.scalars(admins).all() == [user.id]:
        raise Problem(CONFLICT, f"{user.name!r} is the last administrator: make another one first")


def _end_sessions(session: Session, user_id: str, but: str) -> None:
    """A new password ends what was opened with the old one, but for the session that sets it."""
    theirs = update(Token).where(Token.user_id == user_id, Token.kind == "browser", Token.id != but)
    session.execute(theirs.where(Token.revoked_at.is_(None)).values(revoked_at=func.now()))


def _find(session: Session, name: str) -> User | None:
    """A person: service accounts are their projects'."""
    return session.scalars(select(User).where(User.name == name, User.service_of.is_(None))).one_or_none()


def _get(session: Session, name: str) -> User:
    user = _find(session, name)
    if user is None:
        raise _unknown(name)
    return user


def _unknown(name: str) -> Problem:
    return Problem(NOT_FOUND, f"no user {name[:100]!r}")


def _views(session: Session, users: Sequence[User]) -> list[UserView]:
    of: dict[str, list[Membership]] = defaultdict(list)
    query = select(Member.user_id, Project.name, Member.role).join(Project, Project.id == Member.project_id)
    rows = session.execute(query.where(Member.user_id.in_([user.id for user in users])).order_by(Project.name))
    for user_id, name, role in rows:
        of[user_id].append(Membership(name=name, role=role))
    return [
        UserView(
            name=user.name,
            email=user.email,
            admin=user.is_admin,
            disabled=user.disabled_at is not None,
            password=user.password_hash is not None,
            created_at=user.created_at,
            projects=of[user.id],
        )
        for user in users
    ]
