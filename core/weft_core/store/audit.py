"""Reading the audit trail: filters, the records of the retention, and the order of the records for the export."""

from __future__ import annotations

import json
from datetime import timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, select
from sqlalchemy.orm import Session

from weft_core.store.models import ActorKind, AuditRecord

_ORDER_LOCK = 1096107081
"""The advisory lock of the trigger ``audit_in_order`` (migration 0020)."""


class AuditOutcome(StrEnum):
    """The outcome of a request, by its HTTP status."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    FAILED = "failed"

    @classmethod
    def of(cls, status: int) -> AuditOutcome:
        return cls.ALLOWED if status < 400 else cls.REFUSED if status < 500 else cls.FAILED

    @property
    def condition(self) -> ColumnElement[bool]:
        first, beyond = {"allowed": (0, 400), "refused": (400, 500), "failed": (500, 1000)}[self.value]
        return (AuditRecord.status >= first) & (AuditRecord.status < beyond)


def described(record: AuditRecord) -> dict[str, Any]:
    """A record as the API answers it and the export writes it."""
    return {
        "id": record.id,
        "at": record.created_at,
        "actor": record.actor,
        "user": record.user,
        "user_id": record.user_id,
        "token_id": record.token_id,
        "address": record.address,
        "action": record.action,
        "object_kind": record.object_kind,
        "object_id": record.object_id,
        "project": record.project,
        "project_id": record.project_id,
        "outcome": AuditOutcome.of(record.status).value,
        "status": record.status,
        "request_id": record.request_id,
        "count": record.count,
    }


def json_line(record: AuditRecord) -> str:
    """A record as a line of JSON, without the line's end."""
    told = described(record) | {"at": record.created_at.isoformat()}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def newest_id(session: Session) -> int:
    """The id of the newest record. No record with a smaller id comes later.

    Ids are given before records are committed. So this waits, in a transaction of its own, until the inserts that are
    under way have ended; each takes milliseconds.
    """
    session.execute(select(func.pg_advisory_xact_lock(_ORDER_LOCK)))
    return session.scalar(select(func.max(AuditRecord.id))) or 0


def expire(session: Session, age: timedelta, most: int) -> int:
    """Delete up to ``most`` records that are older than ``age``, which is at least 30 days; returns how many. The
    deletion is recorded itself."""
    session.execute(select(func.set_config("weft.audit_expiry", "on", True)))
    old = select(AuditRecord.id).where(AuditRecord.created_at < func.now() - age).order_by(AuditRecord.id).limit(most)
    gone = len(session.execute(delete(AuditRecord).where(AuditRecord.id.in_(old)).returning(AuditRecord.id)).all())
    if gone:
        session.execute(
            insert(AuditRecord).values(
                actor=ActorKind.SYSTEM.value,
                address="",
                action="audit.expire",
                object_kind="record",
                status=200,
                request_id="",
                count=gone,
            )
        )
    return gone
