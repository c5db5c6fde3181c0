"""Reading the audit trail. Administrators read all of it, owners read that of their project."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Select, func, or_, select, text, union_all
from sqlalchemy.orm import Session, aliased

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
    query = query.where(*_between(session, wanted))
    if cursor:
        query = query.where(AuditRecord.id < _decoded(cursor))
    if wanted.action:
        # An index has the records of one action in order, not those of several.
        actions = _actions(session, wanted.action)
        parts = [_newest(query.where(AuditRecord.action == action), limit + 1).subquery() for action in actions]
        if not parts:
            return AuditPage(records=[], next_cursor=None)
        found = aliased(AuditRecord, union_all(*(select(part) for part in parts)).subquery("found"))
        rows = session.scalars(select(found).order_by(found.id.desc()).limit(limit + 1)).all()
    else:
        rows = session.scalars(_newest(query, limit + 1)).all()
    page = rows[:limit]
    return AuditPage(
        records=[AuditView(**described(row)) for row in page],
        next_cursor=paging.encode(str(page[-1].id)) if len(rows) > limit else None,
    )


def _newest(query: Select[AuditRecord], limit: int) -> Select[AuditRecord]:
    return query.order_by(AuditRecord.id.desc()).limit(limit)


def _actions(session: Session, wanted: str) -> list[str]:
    """The action with this name, and those below it, that have been recorded: from one to the next in their index."""
    first = select(func.min(AuditRecord.action).label("action")).cte("actions", recursive=True)
    later = select(func.min(AuditRecord.action)).where(AuditRecord.action > first.c.action).scalar_subquery()
    each = first.union_all(select(later).where(first.c.action.is_not(None)))
    found = session.scalars(select(each.c.action).where(each.c.action.is_not(None)))
    return [action for action in found if action == wanted or action.startswith(wanted + ".")]


_OUT_OF_ORDER = 1000
"""Records that may lie between one and a later one with an earlier time: their transactions were under way at once."""


def _between(session: Session, wanted: AuditFilter) -> list[ColumnElement[bool]]:
    """Ids between which all records of the wanted time are, so that nothing else is read."""
    at, found = AuditRecord.created_at, []
    if wanted.since:
        first = session.scalar(select(AuditRecord.id).where(at >= wanted.since).order_by(at).limit(1))
        found.append(AuditRecord.id >= (first or 0) - _OUT_OF_ORDER)
    if wanted.until:
        last = session.scalar(select(AuditRecord.id).where(at < wanted.until).order_by(at.desc()).limit(1))
        found.append(AuditRecord.id <= (last or 0) + _OUT_OF_ORDER)
    return found


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
    if wanted.object:
        kind, colon, rest = wanted.object.partition(":")
        same = AuditRecord.object_id == wanted.object
        query = query.where(
            or_(same, (AuditRecord.object_kind == kind) & (AuditRecord.object_id == rest)) if colon else same
        )
    if wanted.outcome:
        query = query.where(wanted.outcome.condition)
        if wanted.outcome is not AuditOutcome.ALLOWED:
            query = query.where(text("status >= 400"))  # as the indexes of these have it, without a parameter
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
