"""Reading the audit trail. Administrators read all of it, owners read that of their project."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, or_, select
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal
from weft_api.audit.schemas import AuditPage, AuditView
from weft_api.http import paging
from weft_api.http.problems import FORBIDDEN, Problem, invalid, not_found
from weft_core.store.audit import AuditOutcome, described
from weft_core.store.models import AuditRecord


@dataclass(frozen=True)
class AuditFilter:
    """The conditions for a list of records; empty members limit nothing."""

    project: str = ""
    user: str = ""
    action: str = ""
    object: str = ""
    outcome: AuditOutcome | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_records(session: Session, who: Principal, wanted: AuditFilter, limit: int, cursor: str | None) -> AuditPage:
    """A page of records, newest first.

    Raises:
        Problem: forbidden for a member who is no owner; not_found for a project that the caller is not signed in to.
    """
    query = _conditions(_readable(session, who, wanted.project), wanted)
    if cursor:
        query = query.where(AuditRecord.id < _decoded(cursor))
    rows = session.scalars(query.order_by(AuditRecord.id.desc()).limit(limit + 1)).all()
    page = rows[:limit]
    return AuditPage(
        records=[AuditView(**described(row)) for row in page],
        next_cursor=paging.encode(str(page[-1].id)) if len(rows) > limit else None,
    )


def _readable(session: Session, who: Principal, project: str) -> Select[AuditRecord]:
    if who.admin:
        query = select(AuditRecord)
        return query.where(AuditRecord.project == project) if project else query
    if project not in ("", who.project):
        raise not_found("project", project[:100])
    if not who.may("owner"):
        raise Problem(
            FORBIDDEN,
            f"the audit trail is for administrators and owners; in project {who.project!r} you are {who.role}",
        )
    # By the id: another project may have had the name before.
    return who.scope(session).select(AuditRecord)


def _conditions(query: Select[AuditRecord], wanted: AuditFilter) -> Select[AuditRecord]:
    if wanted.user:
        query = query.where(AuditRecord.user == wanted.user)
    if wanted.action:
        below = AuditRecord.action.startswith(wanted.action + ".", autoescape=True)
        query = query.where(or_(AuditRecord.action == wanted.action, below))
    if wanted.object:
        kind, colon, rest = wanted.object.partition(":")
        same = AuditRecord.object_id == wanted.object
        query = query.where(
            or_(same, (AuditRecord.object_kind == kind) & (AuditRecord.object_id == rest)) if colon else same
        )
    if wanted.outcome:
        query = query.where(wanted.outcome.condition)
    if wanted.since:
        query = query.where(AuditRecord.created_at >= wanted.since)
    if wanted.until:
        query = query.where(AuditRecord.created_at < wanted.until)
    return query


def _decoded(cursor: str) -> int:
    [text] = paging.decode(cursor, 1)
    if not text.isdigit() or len(text) > 18:
        raise invalid("query.cursor", "not a cursor that this API gave", accepted="`next_cursor` of the page before")
    return int(text)
