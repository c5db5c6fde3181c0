"""The users that people at identity providers are, and the roles that their groups give them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import structlog
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from weft_api.access.auth import RANK, Role, revoke_all
from weft_api.http.audited import about
from weft_api.http.problems import FORBIDDEN, UNAUTHENTICATED, Problem
from weft_api.sessions.oidc import Person, Provider
from weft_core.ids import new_id
from weft_core.store.database import Database
from weft_core.store.models import Identity, Member, Project, User
from weft_core.store.queue import note_roles

_LONGEST_NAME = 60
_LOCK = text("select pg_advisory_xact_lock(hashtextextended('weft identities', 0))")

log = structlog.get_logger("weft.oidc")


def sign_in(database: Database, provider: Provider, person: Person) -> User:
    """The user of a person, with the roles of the person's groups. At the first sign-in, Weft creates the user if a
    group gives a role.

    Raises:
        Problem: forbidden without any role; unauthenticated for a disabled user.
    """
    roles = _roles(provider, person)
    with database.transaction() as session:
        session.execute(_LOCK)  # of two first sign-ins of a person, one makes the user
        user = _known(session, person)
        if user is None and roles:
            user = _new_user(session, provider, person)
        if user is not None and user.disabled_at is None:
            _follow_groups(session, user, person.issuer, roles)
            session.flush()
        belongs = user is not None and session.scalar(select(Member.role).where(Member.user_id == user.id).limit(1))
    if user is not None:
        about("user", user.name)
        if user.disabled_at is not None:
            raise Problem(UNAUTHENTICATED, "this user is disabled; ask an administrator")
    if user is None or not belongs:
        title = provider.settings.title or provider.name
        raise Problem(FORBIDDEN, f"none of your groups at {title} has a role in a project here; ask an administrator")
    return user


def _roles(provider: Provider, person: Person) -> dict[str, Role]:
    """The highest role in each project, by its name."""
    roles: dict[str, Role] = {}
    for group in person.groups & provider.settings.groups.keys():
        for project, role in provider.settings.groups[group].items():
            if project not in roles or RANK[role] > RANK[roles[project]]:
                roles[project] = role
    return roles


def _known(session: Session, person: Person) -> User | None:
    identity = session.get(Identity, (person.issuer, person.subject))
    if identity is None:
        return None
    identity.last_used_at = func.now()
    return session.get_one(User, identity.user_id)


def _new_user(session: Session, provider: Provider, person: Person) -> User:
    """A user whose name ends with the provider's, so that nobody comes in under the name of somebody else."""
    plain = re.sub(r"[^A-Za-z0-9._+-]+", "-", person.name.partition("@")[0])[:_LONGEST_NAME]
    plain = re.sub(r"^[^A-Za-z0-9]+|-+$", "", plain) or "user"
    taken = set(session.scalars(select(User.name).where(User.name.endswith(f"@{provider.name}", autoescape=True))))
    name, number = f"{plain}@{provider.name}", 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}@{provider.name}"
    user = User(id=new_id("usr"), name=name, email=person.email)
    session.add(user)
    session.flush()
    session.add(Identity(issuer=person.issuer, subject=person.subject, user_id=user.id))
    log.info("a new user came from an identity provider", provider=provider.name, user=name)
    return user


def _follow_groups(session: Session, user: User, issuer: str, roles: Mapping[str, Role]) -> None:
    """Give the roles, change those that the groups gave before, and take away those that they do not give any more.
    Roles that somebody has set stay as they are."""
    projects = {row.name: row for row in session.scalars(select(Project).where(Project.name.in_(roles)))}
    held = {row.project_id: row for row in session.scalars(select(Member).where(Member.user_id == user.id))}
    changed: set[str] = set()
    for name, role in roles.items():
        if name not in projects:
            log.warning("a group has a role in a project that does not exist", project=name)
            continue
        member = held.pop(projects[name].id, None)
        if member is None:
            session.add(Member(project_id=projects[name].id, user_id=user.id, role=role, issuer=issuer))
            changed.add(projects[name].id)
        elif member.issuer == issuer and member.role != role:
            member.role = role
            changed.add(member.project_id)
    for member in held.values():
        if member.issuer == issuer:
            session.delete(member)
            changed.add(member.project_id)
            revoke_all(session, user.id, member.project_id)
    if changed:
        session.flush()
        note_roles(session, changed)
