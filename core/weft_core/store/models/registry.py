"""The registry of models."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created, project


class Model(Base):
    """A name under which results are kept as numbered versions. Its row is the lock that gives the numbers."""

    __tablename__ = "models"
    __table_args__ = (UniqueConstraint("project_id", "name"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    name: Mapped[str]
    counter: Mapped[int] = mapped_column(server_default="0")  # the last number given; a number is never given again
    created_at: Mapped[datetime] = created()
    updated_at: Mapped[datetime] = created()


class ModelVersion(Base):
    """One job's results, as they were when it ended. Only ``notes`` changes. ``container`` is none for results in the
    installation's own store, where ``prefix`` is a whole key; else ``datastore`` or ``endpoint`` says where it is."""

    __tablename__ = "model_versions"
    __table_args__ = (
        UniqueConstraint("model_id", "number"),
        UniqueConstraint("model_id", "job_id"),  # a job's results are one version, however often they are registered
        Index("ix_model_versions_job_id", "job_id"),
        Index("ix_model_versions_parent_id", "parent_id", postgresql_where=text("parent_id is not null")),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"))
    number: Mapped[int]  # from 1
    job_id: Mapped[str]  # no foreign key: the job may be deleted, its lineage stays
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    parent_id: Mapped[str | None]  # the version that the job started from; it may be deleted, too
    datastore: Mapped[str | None]
    endpoint: Mapped[str | None]
    region: Mapped[str | None]
    secret_id: Mapped[str | None] = mapped_column(ForeignKey("secrets.id"))  # of a connection in the job's manifest
    container: Mapped[str | None]
    prefix: Mapped[str]  # no slash at its ends
    files: Mapped[dict[str, Any] | None]  # {files, bytes, sha256} of the listing; none: nobody could list it then
    lineage: Mapped[dict[str, Any]]
    notes: Mapped[str] = mapped_column(server_default="")  # what its users write down about it
    created_at: Mapped[datetime] = created()


class ModelPromotion(Base):
    """A stage of a model that came to a version, or was taken off it. The newest row of a stage counts."""

    __tablename__ = "model_promotions"
    __table_args__ = (Index("ix_model_promotions_stage", "model_id", "stage", text("id desc")),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    project_id: Mapped[str] = project()
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"))
    stage: Mapped[str]
    number: Mapped[int | None]  # none: taken away
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime] = created()
