"""The inputs of jobs that a project keeps on the server: secrets, data stores, code, packages."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created, one_of, project


class Secret(Base):
    """An encrypted value. ``job_id`` is set for credentials lifted out of a manifest; those have no user-given name."""

    __tablename__ = "secrets"
    __table_args__ = (UniqueConstraint("project_id", "name"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    name: Mapped[str]  # for a manifest's credentials "<job id>/<data store id>"
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    ciphertext: Mapped[bytes] = mapped_column(LargeBinary)  # MultiFernet token
    created_at: Mapped[datetime] = created()
    updated_at: Mapped[datetime] = created()


class Datastore(Base):
    """An S3 endpoint with credentials that manifests name by ``datastore: NAME``.

    The installation's own store issues temporary keys for each use. Such a data store has no credentials, but a
    ``space``: the beginning of the names of the project's buckets.
    """

    __tablename__ = "datastores"
    __table_args__ = (UniqueConstraint("project_id", "name"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    name: Mapped[str]
    endpoint: Mapped[str]  # e.g. https://s3.eu-central-1.amazonaws.com
    region: Mapped[str | None]
    secret_id: Mapped[str | None] = mapped_column(ForeignKey("secrets.id"))
    """Of a JSON object: user_name, password, session_token."""
    space: Mapped[str | None]
    created_at: Mapped[datetime] = created()


class CodeBundle(Base):
    """A zip of training code in the installation's bucket under ``code/<project>/<sha256>.zip``."""

    __tablename__ = "code_bundles"
    project_id: Mapped[str] = project(primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    files: Mapped[int]
    created_at: Mapped[datetime] = created()


class OverlayState(StrEnum):
    BUILDING = "BUILDING"
    READY = "READY"
    FAILED = "FAILED"
    DROPPED = "DROPPED"
    """It was there, and was removed as nobody used it. Its lock is still known."""


class Overlay(Base):
    """The packages that an image lacks for a request, in the installation's bucket under
    ``packages/<project>/<sha256>.zip``; built by a job (weft_core.packages)."""

    __tablename__ = "overlays"
    __table_args__ = (
        CheckConstraint(one_of("state", OverlayState), name="state"),
        Index("ix_overlays_key", "project_id", "key"),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    key: Mapped[str]  # PackageRequest.key
    image: Mapped[str]
    engine: Mapped[str]
    state: Mapped[str] = mapped_column(server_default=OverlayState.BUILDING.value)
    reason: Mapped[str] = mapped_column(server_default="")  # why it failed, for the user
    manifest: Mapped[dict[str, Any]]  # of the build, in canonical form
    code_sha256: Mapped[str | None]  # of the build
    job_id: Mapped[str]  # the build; no foreign key, as builds are deleted
    builds: Mapped[int] = mapped_column(server_default="1")  # how many were begun: the learners of some were lost
    lock: Mapped[list[Any] | None]  # [{name, version, source, replaces, hashes}]
    lock_sha256: Mapped[str | None]
    sha256: Mapped[str | None]  # of the archive; none in a READY overlay: the image lacks nothing
    size: Mapped[int | None] = mapped_column(BigInteger)  # bytes of the archive
    created_at: Mapped[datetime] = created()  # when its versions were resolved; of a later build with them, too
    used_at: Mapped[datetime] = created()
