"""Users and their rights: the installation, users, projects (the tenants), members, tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, ForeignKey, func, text
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created, project


class Installation(Base):
    """One row: the identity that labels everything this installation creates on engines."""

    __tablename__ = "installation"
    __table_args__ = (CheckConstraint("singleton", name="one_row"),)
    singleton: Mapped[bool] = mapped_column(Boolean, primary_key=True)
    id: Mapped[str]
    created_at: Mapped[datetime] = created()


class User(Base):
    __tablename__ = "users"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    email: Mapped[str | None]
    password_hash: Mapped[str | None]  # argon2id; none = signs in with tokens only
    is_admin: Mapped[bool] = mapped_column(server_default=text("false"))
    disabled_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = created()
    # The project whose service account it is; none = a person.
    service_of: Mapped[str | None] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"), index=True)


class Project(Base):
    """The tenant."""

    __tablename__ = "projects"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    # The most that its running jobs may hold at once: {cpus, gpus, memory, jobs}; a missing key means no limit.
    quota: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    # Fair share (docs/fair-share.md): {cpus, gpus, memory} that it can always get back, and whether it may hold more.
    weight: Mapped[float] = mapped_column(server_default=text("1"))
    guaranteed: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    borrows: Mapped[bool] = mapped_column(Boolean, server_default=text("true"))
    # By role, for the jobs of one member: {priority, cpus, gpus, memory, jobs}.
    caps: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    # What is kept of ended jobs (weft_core.store.retention): {logs, metrics, results, events, code} → {days, bytes};
    # for what is not in it, the settings hold.
    retention: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    # What was removed so far: {logs, …} → {jobs, bytes, at}; and how far workers have come: {until, began}.
    removed: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    retention_due: Mapped[datetime] = mapped_column(server_default=func.now())  # when a worker looks next
    # Whether editors may open tunnels into its running jobs (docs/into-a-job.md).
    tunnels: Mapped[bool] = mapped_column(Boolean, server_default=text("true"))
    created_at: Mapped[datetime] = created()


class ProjectUsage(Base):
    """What a project's ended attempts have used, decayed (weft_core.store.shares)."""

    __tablename__ = "project_usage"
    project_id: Mapped[str] = project(primary_key=True)
    average: Mapped[float]  # CPUs held on average, with GPUs converted
    at: Mapped[datetime]  # the moment that it is true for; it decays from there


class Member(Base):
    __tablename__ = "members"
    __table_args__ = (CheckConstraint("role in ('owner', 'editor', 'viewer')", name="role"),)
    project_id: Mapped[str] = project(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True)
    role: Mapped[str]
    created_at: Mapped[datetime] = created()
    # Of the identity provider whose groups gave the role; none = somebody set it.
    issuer: Mapped[str | None]


class Identity(Base):
    """An account at an identity provider, and the user that signs in with it. Nothing but issuer and subject names it:
    another provider may claim the same e-mail address."""

    __tablename__ = "identities"
    issuer: Mapped[str] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = created()
    last_used_at: Mapped[datetime] = created()


class Token(Base):
    """An API token, or a browser's session. Only its SHA-256 is kept: tokens carry 256 random bits, so a slow hash
    would add nothing."""

    __tablename__ = "tokens"
    __table_args__ = (
        CheckConstraint("kind in ('api', 'browser')", name="kind"),
        CheckConstraint("role in ('owner', 'editor', 'viewer')", name="role"),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"), index=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    prefix: Mapped[str]  # the first characters, to recognise it by in lists
    sha256: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime] = created()
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    role: Mapped[str | None]  # the most that it may do; none = all that its user may
    # Of a session: each use moves expires_at on, up to this; and the token that it was opened with, if any.
    kind: Mapped[str] = mapped_column(server_default="api")
    ends_at: Mapped[datetime | None]
    opened_with: Mapped[str | None] = mapped_column(ForeignKey("tokens.id", ondelete="CASCADE"), index=True)
    # What its jobs may use; a token that it makes has the same.
    budget_id: Mapped[str | None] = mapped_column(ForeignKey("budgets.id", ondelete="SET NULL"))


class SignInLink(Base):
    """A link that signs a browser in, once, as the user of the token that asked for it. Only its SHA-256 is kept."""

    __tablename__ = "sign_in_links"
    sha256: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = created()
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class DeviceLogin(Base):
    """A program that waits to be signed in by its user, who confirms its code in a browser (RFC 8628)."""

    __tablename__ = "device_logins"
    device_sha256: Mapped[str] = mapped_column(primary_key=True)
    user_code: Mapped[str] = mapped_column(unique=True)
    client: Mapped[str]  # how the program calls its machine
    address: Mapped[str]
    project: Mapped[str | None]  # the name of the wanted one
    created_at: Mapped[datetime] = created()
    expires_at: Mapped[datetime] = mapped_column(index=True)
    polled_at: Mapped[datetime | None]
    denied_at: Mapped[datetime | None]
    # The session or the token of the user who has confirmed it.
    confirmed_with: Mapped[str | None] = mapped_column(ForeignKey("tokens.id", ondelete="CASCADE"), index=True)
