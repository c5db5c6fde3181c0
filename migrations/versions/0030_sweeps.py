"""Sweeps and their trials."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_SWEEP = "'RUNNING', 'PAUSED', 'STOPPING', 'COMPLETED', 'STOPPED', 'FAILED'"
_TRIAL = "'RUNNING', 'COMPLETED', 'FAILED', 'HALTED'"


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
        "sweeps",
        sa.Column("id", sa.Text(), nullable=False),
        *_project("sweeps"),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("manifest", JSONB(), nullable=False),
        sa.Column("code_sha256", sa.Text()),
        sa.Column("credentials", sa.LargeBinary()),
        sa.Column("packages", JSONB()),
        sa.Column("pretrained_id", sa.Text()),
        sa.Column("state", sa.Text(), server_default="RUNNING", nullable=False),
        sa.Column("ends_as", sa.Text()),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("asked", sa.Integer(), server_default="0", nullable=False),
        sa.Column("told", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("best", sa.Integer()),
        sa.Column("best_value", sa.Double()),
        _time("created_at", nullable=False),
        _time("ended_at"),
        sa.Column("next_step_at", sa.DateTime(timezone=True), server_default=sa.func.now()),
        sa.CheckConstraint(f"state in ({_SWEEP})", name=op.f("ck_sweeps_state")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sweeps_user_id_users")),
        sa.ForeignKeyConstraint(
            ["project_id", "code_sha256"],
            ["code_bundles.project_id", "code_bundles.sha256"],
            name=op.f("fk_sweeps_project_id_code_bundles"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweeps")),
    )
    op.create_index("ix_sweeps_due", "sweeps", ["next_step_at"], postgresql_where=sa.text("next_step_at is not null"))
    op.create_index("ix_sweeps_listing", "sweeps", ["project_id", sa.text("created_at desc"), sa.text("id desc")])
    op.create_index(
        "ix_sweeps_code",
        "sweeps",
        ["project_id", "code_sha256"],
        postgresql_where=sa.text("code_sha256 is not null"),
    )
    op.create_table(
        "trials",
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        *_project("trials"),
        sa.Column("parameters", JSONB(), nullable=False),
        sa.Column("job_id", sa.Text()),
        sa.Column("runs", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), server_default="RUNNING", nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("seen", sa.Integer(), nullable=False),
        sa.Column("told", sa.Integer()),
        sa.Column("memory", JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        _time("created_at", nullable=False),
        _time("ended_at"),
        sa.CheckConstraint(f"state in ({_TRIAL})", name=op.f("ck_trials_state")),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeps.id"], name=op.f("fk_trials_sweep_id_sweeps"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_trials_job_id_jobs"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("sweep_id", "number", name=op.f("pk_trials")),
        sa.UniqueConstraint("job_id", name=op.f("uq_trials_job_id")),
    )
    op.create_index("ix_trials_open", "trials", ["job_id"], postgresql_where=sa.text("state = 'RUNNING'"))
    op.create_index("ix_trials_told", "trials", ["sweep_id", "told"])
    op.create_index(
        "ix_trials_value",
        "trials",
        ["sweep_id", "value", "number"],
        postgresql_where=sa.text("state = 'COMPLETED'"),
    )
    for table in ("sweeps", "trials"):
        op.execute(f"create policy weft_project on {table} using (project_id = current_setting('weft.project', true))")
        op.execute(f"alter table {table} enable row level security")


def downgrade() -> None:
    op.drop_table("trials")
    op.drop_table("sweeps")
