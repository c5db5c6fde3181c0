"""Jobs that start after other jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("predecessors", sa.Integer(), server_default="0", nullable=False))
    op.create_table(
        "predecessors",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("predecessor_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("ending", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint("ending in ('completed', 'failed', 'ended')", name=op.f("ck_predecessors_ending")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_predecessors_job_id_jobs"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_predecessors_project_id_projects"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "predecessor_id", name=op.f("pk_predecessors")),
    )
    op.create_index("ix_predecessors_open", "predecessors", ["job_id"], postgresql_where=sa.text("ended_at is null"))
    op.execute("create policy weft_project on predecessors using (project_id = current_setting('weft.project', true))")
    op.execute("alter table predecessors enable row level security")


def downgrade() -> None:
    # The previous version knows no such jobs: those that still wait would start at once.
    op.execute(
        "update jobs set state = 'HALTED', desired = 'HALTED', ended_at = now(), next_step_at = null, "
        "reason = 'halted by a downgrade: it waited for other jobs' where predecessors > 0 and state = 'QUEUED'"
    )
    op.drop_table("predecessors")
    op.drop_column("jobs", "predecessors")
