"""Schedules and the starts of their jobs; an index that finds the jobs that wait for a job."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def _project(table: str) -> tuple[sa.Column[str] | sa.ForeignKeyConstraint, ...]:
    return (
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f(f"fk_{table}_project_id_projects"), ondelete="CASCADE"
        ),
    )


def _time(name: str, nullable: bool = True) -> sa.Column[Any]:
    return sa.Column(
        name, sa.DateTime(timezone=True), server_default=None if nullable else sa.func.now(), nullable=nullable
    )


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.Text(), nullable=False),
        *_project("schedules"),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("manifest", JSONB(), nullable=False),
        sa.Column("code_sha256", sa.Text()),
        sa.Column("credentials", sa.LargeBinary()),
        sa.Column("packages", JSONB()),
        sa.Column("budget_id", sa.Text()),
        sa.Column("model", sa.Text()),
        sa.Column("stage", sa.Text()),
        sa.Column("state", sa.Text(), server_default="ACTIVE", nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        _time("due_at"),
        _time("next_step_at"),
        _time("created_at", nullable=False),
        sa.CheckConstraint("state in ('ACTIVE', 'PAUSED')", name=op.f("ck_schedules_state")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_schedules_user_id_users")),
        sa.ForeignKeyConstraint(
            ["budget_id"], ["budgets.id"], name=op.f("fk_schedules_budget_id_budgets"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["project_id", "code_sha256"],
            ["code_bundles.project_id", "code_bundles.sha256"],
            name=op.f("fk_schedules_project_id_code_sha256_code_bundles"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
    )
    for name, columns, where in (
        ("due", ["next_step_at"], "next_step_at is not null"),
        ("code", ["project_id", "code_sha256"], "code_sha256 is not null"),
        ("stage", ["project_id", "model", "stage"], "model is not null"),
    ):
        op.create_index(f"ix_schedules_{name}", "schedules", columns, postgresql_where=sa.text(where))
    op.create_index("ix_schedules_listing", "schedules", ["project_id", sa.text("created_at desc"), sa.text("id desc")])
    op.create_table(
        "starts",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        *_project("starts"),
        sa.Column("schedule_id", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        _time("due_at", nullable=False),
        sa.Column("promotion_id", sa.BigInteger()),
        sa.Column("version", sa.Integer()),
        sa.Column("user_id", sa.Text()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("job_id", sa.Text()),
        _time("created_at", nullable=False),
        sa.CheckConstraint("trigger in ('time', 'promotion', 'request')", name=op.f("ck_starts_trigger")),
        sa.CheckConstraint("state in ('DUE', 'STARTED', 'SKIPPED', 'REFUSED')", name=op.f("ck_starts_state")),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name=op.f("fk_starts_schedule_id_schedules"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_starts_user_id_users")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_starts_job_id_jobs"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_starts")),
        sa.UniqueConstraint("schedule_id", "promotion_id", name=op.f("uq_starts_schedule_id_promotion_id")),
    )
    op.create_index("ix_starts_listing", "starts", ["schedule_id", sa.text("id desc")])
    op.create_index("ix_starts_job_id", "starts", ["job_id"], postgresql_where=sa.text("job_id is not null"))
    op.create_index(
        "uq_starts_time", "starts", ["schedule_id", "due_at"], unique=True, postgresql_where=sa.text("trigger = 'time'")
    )
    op.create_index(
        "ix_predecessors_awaited", "predecessors", ["predecessor_id"], postgresql_where=sa.text("ended_at is null")
    )
    for table in ("schedules", "starts"):
        op.execute(f"create policy weft_project on {table} using (project_id = current_setting('weft.project', true))")
        op.execute(f"alter table {table} enable row level security")


def downgrade() -> None:
    op.drop_index("ix_predecessors_awaited", "predecessors")
    op.drop_table("starts")
    op.drop_table("schedules")
