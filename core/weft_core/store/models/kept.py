"""Things that a project keeps on the server: secrets, data stores, code."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, LargeBinary, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created, project


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
    """An S3 endpoint with credentials that manifests name by ``datastore: NAME``."""

    __tablename__ = "datastores"
    __table_args__ = (UniqueConstraint("project_id", "name"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    name: Mapped[str]
    endpoint: Mapped[str]  # e.g. https://s3.eu-central-1.amazonaws.com
    region: Mapped[str | None]
    secret_id: Mapped[str] = mapped_column(ForeignKey("secrets.id"))  # JSON {user_name, password, session_token?}
    created_at: Mapped[datetime] = created()


class CodeBundle(Base):
    """A zip of training code in the installation's bucket under ``code/<project>/<sha256>.zip``."""

    __tablename__ = "code_bundles"
    project_id: Mapped[str] = project(primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    files: Mapped[int]
    created_at: Mapped[datetime] = created()
