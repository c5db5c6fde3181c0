"""The rights of users for whom Weft makes jobs while they do nothing themselves."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from weft_core.store.models import Member, User
from weft_core.store.row_security import across_projects

_SUBMITTERS = ("editor", "owner")


def submitting_role(session: Session, project_id: str, user_id: str) -> str | None:
    """The role with which a user may submit jobs to a project now; None: the user may not."""
    query = (
        select(Member.role)
        .join(User, User.id == Member.user_id)
        .where(Member.project_id == project_id, Member.user_id == user_id, User.disabled_at.is_(None))
    )
    with across_projects(session):  # a project's own requests do not see which users are disabled
        role = session.scalars(query).one_or_none()
    return role if role in _SUBMITTERS else None
