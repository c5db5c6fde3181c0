"""Budgets of GPU-hours."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def _project(table: str) -> list[sa.schema.SchemaItem]:
    name = op.f(f"fk_{table}_project_id_projects")
    return [
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=name, ondelete="CASCADE"),
    ]


def _created() -> sa.Column[object]:
    return sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False)


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.Text(), nullable=False),
        *_project("budgets"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("gpu_seconds", sa.Double(), nullable=False),
        _created(),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budgets")),
    )
    op.create_table(
        "charges",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("budget_id", sa.Text(), nullable=False),
        *_project("charges"),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("gpu_seconds", sa.Double(), nullable=False),
        _created(),
        sa.Column("settled_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(
            ["budget_id"], ["budgets.id"], name=op.f("fk_charges_budget_id_budgets"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_charges")),
    )
    op.create_index("ix_charges_budget_id", "charges", ["budget_id"])
    for table in ("budgets", "charges"):
        op.execute(f"create policy weft_project on {table} using (project_id = current_setting('weft.project', true))")
        op.execute(f"alter table {table} enable row level security")
    for table in ("tokens", "jobs", "sweeps"):
        op.add_column(table, sa.Column("budget_id", sa.Text()))
        op.create_foreign_key(
            op.f(f"fk_{table}_budget_id_budgets"), table, "budgets", ["budget_id"], ["id"], ondelete="SET NULL"
        )


def downgrade() -> None:
    # The previous version knows no budgets: these tokens could spend without a limit, and so could the jobs that wait.
    op.execute("update tokens set revoked_at = now() where budget_id is not null and revoked_at is null")
    op.execute(
        "update jobs set state = 'HALTED', desired = 'HALTED', ended_at = now(), next_step_at = null, "
        "reason = 'halted by a downgrade: it had a budget' where budget_id is not null and state = 'QUEUED'"
    )
    for table in ("sweeps", "jobs", "tokens"):
        op.drop_column(table, "budget_id")
    op.drop_table("charges")
    op.drop_table("budgets")
