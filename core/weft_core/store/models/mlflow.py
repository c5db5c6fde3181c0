"""What programs log with MLflow's client (docs/mlflow.md). The metrics of jobs are in the tables of metrics."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Double, ForeignKey, Identity, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from weft_core.store.models.base import Base, created, project


def _object() -> Mapped[dict[str, Any]]:
    return mapped_column(server_default=text("'{}'::jsonb"))


class MlflowExperiment(Base):
    """An experiment that somebody has created or tagged. Each name of a job is an experiment, too, without a row."""

    __tablename__ = "mlflow_experiments"
    __table_args__ = (UniqueConstraint("project_id", "name"),)
    project_id: Mapped[str] = project(primary_key=True)
    id: Mapped[str] = mapped_column(primary_key=True)  # from the name that it had first
    name: Mapped[str]
    tags: Mapped[dict[str, Any]] = _object()
    created_at: Mapped[datetime] = created()
    updated_at: Mapped[datetime] = created()
    deleted_at: Mapped[datetime | None]


class MlflowRun(Base):
    """A run: what a job has logged besides metrics (its id is the job's), another run of a job, or a run of no job."""

    __tablename__ = "mlflow_runs"
    __table_args__ = (
        Index("ix_mlflow_runs_listing", "project_id", "experiment_id", text("start_time desc")),
        Index("ix_mlflow_runs_job_id", "job_id", postgresql_where=text("job_id is not null")),
        Index(
            "ix_mlflow_runs_params",
            text("weft_params(project_id, params)"),
            postgresql_using="gin",
            postgresql_with={"fastupdate": "off"},
        ),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    attempt: Mapped[int | None]  # of a job's other run: who created it
    rank: Mapped[int | None]
    group: Mapped[str | None]  # of a job's other run: the group of its metrics among the job's
    experiment_id: Mapped[str]
    name: Mapped[str | None]  # of a job's own run: none = the job's
    user: Mapped[str]
    status: Mapped[str]  # of a job's own run the job's state counts
    start_time: Mapped[int] = mapped_column(BigInteger)  # ms since the epoch, the client's clock
    end_time: Mapped[int | None] = mapped_column(BigInteger)
    params: Mapped[dict[str, Any]] = _object()  # key → [value, attempt, rank]
    tags: Mapped[dict[str, Any]] = _object()
    metrics: Mapped[dict[str, Any]] = _object()  # key → [value, step, time] of the newest; a job's own has none
    inputs: Mapped[dict[str, Any]] = _object()  # {datasets, models}, as they came
    outputs: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))
    # Of a job's own run: which learners of the newest attempt have taken it: {attempt, ranks}.
    opened: Mapped[dict[str, Any]] = _object()
    points: Mapped[int] = mapped_column(BigInteger, server_default="0")  # in mlflow_points
    artifact_bytes: Mapped[int] = mapped_column(BigInteger, server_default="0")  # sent, also what was sent again
    deleted_at: Mapped[datetime | None]


class MlflowPoint(Base):
    """A value of a metric of a run that belongs to no job."""

    __tablename__ = "mlflow_points"
    __table_args__ = (Index("ix_mlflow_points_key", "run_id", "key", "id"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    project_id: Mapped[str] = project()
    run_id: Mapped[str] = mapped_column(ForeignKey("mlflow_runs.id", ondelete="CASCADE"))
    key: Mapped[str]
    step: Mapped[int] = mapped_column(BigInteger)
    time: Mapped[int] = mapped_column(BigInteger)  # ms since the epoch
    value: Mapped[float] = mapped_column(Double)


class MlflowModel(Base):
    """A logged model of MLflow 3. Its files are among the artifacts of its run."""

    __tablename__ = "mlflow_models"
    __table_args__ = (Index("ix_mlflow_models_listing", "project_id", "experiment_id"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = project()
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    run_id: Mapped[str | None]
    experiment_id: Mapped[str]
    name: Mapped[str]
    model_type: Mapped[str | None]
    status: Mapped[str]
    params: Mapped[dict[str, Any]] = _object()
    tags: Mapped[dict[str, Any]] = _object()
    metrics: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))
    artifact_bytes: Mapped[int] = mapped_column(BigInteger, server_default="0")  # of a model without a run
    created_at: Mapped[datetime] = created()
    updated_at: Mapped[datetime] = created()
    deleted_at: Mapped[datetime | None]
