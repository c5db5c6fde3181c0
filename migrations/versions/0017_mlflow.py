"""What programs log with MLflow's client: experiments, runs, points of runs without a job, logged models."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def _text(name: str, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def _number(name: str, kind: type = sa.BigInteger, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind(), **{"nullable": False, **options})


def _json(*names: str, empty: str = "{}") -> list[sa.Column[Any]]:
    return [sa.Column(name, JSONB(), server_default=sa.text(f"'{empty}'::jsonb"), nullable=False) for name in names]


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False)


def _table(
    name: str, key: tuple[str, ...], *columns: sa.schema.SchemaItem, job: bool = False, run: bool = False
) -> None:
    """A table whose rows belong to a project."""
    parents = (
        [("project_id", "projects")]
        + ([("job_id", "jobs")] if job else [])
        + ([("run_id", "mlflow_runs")] if run else [])
    )
    op.create_table(
        name,
        _text("project_id"),
        *columns,
        *(
            sa.ForeignKeyConstraint(
                [column], [f"{table}.id"], name=op.f(f"fk_{name}_{column}_{table}"), ondelete="CASCADE"
            )
            for column, table in parents
        ),
        sa.PrimaryKeyConstraint(*key, name=op.f(f"pk_{name}")),
    )


def upgrade() -> None:
    op.add_column("attempts", _text("mlflow_sha256", nullable=True))
    op.create_unique_constraint(op.f("uq_attempts_mlflow_sha256"), "attempts", ["mlflow_sha256"])
    _table(
        "mlflow_experiments",
        ("project_id", "id"),
        *(_text("id"), _text("name"), *_json("tags"), _time("created_at"), _time("updated_at")),
        sa.Column("deleted_at", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_mlflow_experiments_project_id_name")),
    )
    _table(
        "mlflow_runs",
        ("id",),
        *(_text("id"), _text("job_id", nullable=True)),
        *(_number(name, sa.Integer, nullable=True) for name in ("attempt", "rank")),
        *(_text("group", nullable=True), _text("experiment_id"), _text("name", nullable=True)),
        *(_text("user"), _text("status"), _number("start_time"), _number("end_time", nullable=True)),
        *(*_json("params", "tags", "metrics", "inputs"), *_json("outputs", empty="[]"), *_json("opened")),
        *(_number(name, server_default="0") for name in ("points", "artifact_bytes")),
        sa.Column("deleted_at", sa.DateTime(timezone=True)),
        job=True,
    )
    op.create_index(
        "ix_mlflow_runs_listing", "mlflow_runs", ["project_id", "experiment_id", sa.text("start_time desc")]
    )
    op.create_index("ix_mlflow_runs_job_id", "mlflow_runs", ["job_id"], postgresql_where=sa.text("job_id is not null"))
    _table(
        "mlflow_points",
        ("id",),
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        *(_text("run_id"), _text("key"), _number("step"), _number("time"), _number("value", sa.Double)),
        run=True,
    )
    op.create_index("ix_mlflow_points_key", "mlflow_points", ["run_id", "key", "id"])
    _table(
        "mlflow_models",
        ("id",),
        *(_text("id"), _text("job_id", nullable=True), _text("run_id", nullable=True), _text("experiment_id")),
        *(_text("name"), _text("model_type", nullable=True), _text("status")),
        *(*_json("params", "tags"), *_json("metrics", empty="[]"), _number("artifact_bytes", server_default="0")),
        *(_time("created_at"), _time("updated_at")),
        sa.Column("deleted_at", sa.DateTime(timezone=True)),
        job=True,
    )
    op.create_index("ix_mlflow_models_listing", "mlflow_models", ["project_id", "experiment_id"])
    op.create_index(op.f("ix_mlflow_models_job_id"), "mlflow_models", ["job_id"])


def downgrade() -> None:
    for name in ("mlflow_models", "mlflow_points", "mlflow_runs", "mlflow_experiments"):
        op.drop_table(name)
    op.drop_column("attempts", "mlflow_sha256")
