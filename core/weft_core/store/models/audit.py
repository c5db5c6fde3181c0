"""The audit trail."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, CheckConstraint, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created, one_of


class ActorKind(StrEnum):
    """How an actor proved its identity."""

    TOKEN = "token"  # noqa: S105 - a word
    SESSION = "session"
    PASSWORD = "password"  # noqa: S105 - a word
    PROVIDER = "provider"
    LEARNER = "learner"
    ANONYMOUS = "anonymous"
    SYSTEM = "system"


class AuditRecord(Base):
    """The record of an action. A trigger refuses UPDATE, TRUNCATE, and each DELETE but that of the retention (migration
    0020).

    It has no foreign keys: a record outlives what it is about. ``id`` is the order of the records: a trigger lets the
    export wait for the inserts that are under way (:mod:`weft_core.store.audit`).
    """

    __tablename__ = "audit"
    __table_args__ = (
        CheckConstraint(one_of("actor", ActorKind), name="actor"),
        Index("ix_audit_created_at", "created_at"),
        Index("ix_audit_project_id_id", "project_id", "id"),
        Index("ix_audit_user", "user_name", "id"),
        Index("ix_audit_action", "action", "id"),
        Index("ix_audit_project_user", "project_id", "user_name", "id"),
        Index("ix_audit_project_action", "project_id", "action", "id"),
        Index("ix_audit_project_name", "project_name", "id"),
        Index("ix_audit_refused", "id", postgresql_where=text("status >= 400")),
        Index("ix_audit_project_refused", "project_id", "id", postgresql_where=text("status >= 400")),
        Index("ix_audit_object_id", "object_id", postgresql_where=text("object_id is not null")),
    )
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    created_at: Mapped[datetime] = created()
    actor: Mapped[str]
    user_id: Mapped[str | None]
    user: Mapped[str | None] = mapped_column("user_name")
    token_id: Mapped[str | None]  # of a token or a session; of a learner the id of its attempt
    address: Mapped[str]
    action: Mapped[str]  # jobs.halt
    object_kind: Mapped[str | None]
    object_id: Mapped[str | None]
    project_id: Mapped[str | None]  # none: it concerns the installation
    project: Mapped[str | None] = mapped_column("project_name")
    status: Mapped[int]  # of HTTP
    request_id: Mapped[str]
    count: Mapped[int] = mapped_column(server_default="1")  # equal refusals that the record stands for


class AuditExport(Base):
    """How far the records have been sent to a target of the setting ``audit.export``."""

    __tablename__ = "audit_exports"
    target: Mapped[str] = mapped_column(primary_key=True)
    last_id: Mapped[int] = mapped_column(BigInteger)
    updated_at: Mapped[datetime] = created()
