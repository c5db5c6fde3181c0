"""Metrics of trainings: batches that wait, records, series in blocks, what lists show."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0008"
down_revision = "0010"
branch_labels = None
depends_on = None


def _number(name: str, kind: type = sa.BigInteger, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind(), **{"nullable": False, **options})


def _table(name: str, key: tuple[str, ...], *columns: sa.schema.SchemaItem, of: str = "job") -> None:
    """A table whose rows belong to a project and go with their job."""
    parent = {"job": ("job_id", "jobs", sa.Text), "series": ("series_id", "metric_series", sa.BigInteger)}[of]
    op.create_table(
        name,
        sa.Column(parent[0], parent[2](), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        *columns,
        sa.ForeignKeyConstraint(
            [parent[0]], [f"{parent[1]}.id"], name=op.f(f"fk_{name}_{parent[0]}_{parent[1]}"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f(f"fk_{name}_project_id_projects"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(*key, name=op.f(f"pk_{name}")),
    )


def upgrade() -> None:
    op.add_column("learners", _number("metrics_next", server_default="0"))
    _table(
        "metric_cursors",
        ("job_id",),
        _number("next_batch", server_default="0"),
        _number("next_record", server_default="1"),
        _number("points", server_default="0"),
        _number("bytes", server_default="0"),
        _number("system_points", server_default="0"),
        _number("series", sa.Integer, server_default="0"),
        _number("waiting", sa.Integer, server_default="0"),
        sa.Column("dropped", JSONB(), server_default=sa.text("'[]'::jsonb"), nullable=False),
    )
    _table(
        "metric_batches",
        ("job_id", "n"),
        _number("n"),
        *(_number(name, sa.Integer) for name in ("attempt", "rank")),
        _number("first_record"),
        *(_number(name, sa.Integer) for name in ("records", "system")),
        _number("body", sa.LargeBinary),
    )
    _table(
        "metric_records",
        ("job_id", "first_record"),
        _number("first_record"),
        _number("records", sa.Integer),
        _number("last_time"),
        _number("body", sa.LargeBinary),
    )
    _table(
        "metric_series",
        ("id",),
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        *(_number(name, sa.Integer) for name in ("attempt", "rank")),
        *(_number(name, sa.Text) for name in ("kind", "group", "name")),
        *(_number(name) for name in ("points", "first_step", "last_step", "first_time", "last_time")),
        _number("last", sa.Double),
        *(_number(name, sa.Double, nullable=True) for name in ("min", "max")),
        sa.UniqueConstraint(
            *("job_id", "attempt", "rank", "kind", "group", "name"),
            name=op.f("uq_metric_series_job_id_attempt_rank_kind_group_name"),
        ),
    )
    _table(
        "metric_blocks",
        ("series_id", "n"),
        *(_number(name, sa.Integer) for name in ("n", "points")),
        *(_number(name) for name in ("first_step", "last_step", "first_time", "last_time")),
        *(_number(name, sa.Boolean) for name in ("steps_rise", "times_rise")),
        *(_number(name, sa.LargeBinary) for name in ("summary", "body")),
        of="series",
    )
    # Packed already: compressing it again costs more than it saves.
    op.execute("alter table metric_blocks alter column body set storage external")
    op.execute("alter table metric_blocks alter column summary set storage external")
    _table(
        "job_metrics",
        ("job_id", "name"),
        _number("name", sa.Text),
        _number("rank", sa.Integer),
        *(_number(name, sa.Double, nullable=True) for name in ("last", "min", "max")),
        _number("step", nullable=True),
    )
    op.create_index("ix_job_metrics_listing", "job_metrics", ["project_id", "name"])


def downgrade() -> None:
    for name in ("job_metrics", "metric_blocks", "metric_series", "metric_records", "metric_batches", "metric_cursors"):
        op.drop_table(name)
    op.drop_column("learners", "metrics_next")
