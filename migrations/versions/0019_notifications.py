"""Notifications: rules that have fired, the outbox, why a job is to be halted, when the last metric came."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_COLUMNS = (
    ("jobs", "halt_reason", sa.Text()),
    ("learners", "heard_since", sa.DateTime(timezone=True)),
    ("metric_cursors", "stepped_at", sa.DateTime(timezone=True)),
)


def _text(name: str, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def _time(name: str, now: bool = False, nullable: bool = True) -> sa.Column[Any]:
    default = sa.text("now()") if now else None
    return sa.Column(name, sa.DateTime(timezone=True), server_default=default, nullable=nullable)


def _parent(table: str, column: str, parent: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_{column}_{parent}")
    return sa.ForeignKeyConstraint([column], [f"{parent}.id"], name=name, ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "rule_firings",
        _text("job_id"),
        sa.Column("rule", sa.Integer(), nullable=False),
        _text("project_id"),
        sa.Column("attempt", sa.Integer(), nullable=False),
        _text("found"),
        _time("fired_at", now=True, nullable=False),
        _time("acted_at"),
        *(_parent("rule_firings", *of) for of in (("job_id", "jobs"), ("project_id", "projects"))),
        sa.PrimaryKeyConstraint("job_id", "rule", name=op.f("pk_rule_firings")),
    )
    op.create_index("ix_rule_firings_open", "rule_firings", ["job_id"], postgresql_where=sa.text("acted_at is null"))
    parents = (("project_id", "projects"), ("job_id", "jobs"), ("event_id", "events"))
    op.create_table(
        "deliveries",
        *(_text(name) for name in ("id", "project_id", "job_id")),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("target", sa.Integer(), nullable=False),
        _time("queued_at", now=True, nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        _time("tried_at"),
        _text("status", nullable=True),
        *(_time("delivered_at"), _time("failed_at"), _time("next_try_at", now=True)),
        *(_parent("deliveries", *of) for of in parents),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint("event_id", "target", name=op.f("uq_deliveries_event_id_target")),
    )
    op.create_index("ix_deliveries_job", "deliveries", ["job_id", "event_id"])
    due = sa.text("next_try_at is not null")
    op.create_index("ix_deliveries_due", "deliveries", ["next_try_at"], postgresql_where=due)
    for table, name, kind in _COLUMNS:
        op.add_column(table, sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    for table, name, _ in _COLUMNS:
        op.drop_column(table, name)
    for table in ("deliveries", "rule_firings"):
        op.drop_table(table)
