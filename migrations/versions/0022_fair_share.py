"""Fair share among projects: weights, guarantees, caps, what was used; and the preemption of attempts."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("projects", sa.Column("weight", sa.Float(), server_default=sa.text("1"), nullable=False))
    op.add_column("projects", sa.Column("guaranteed", JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False))
    op.add_column("projects", sa.Column("borrows", sa.Boolean(), server_default=sa.text("true"), nullable=False))
    op.add_column("projects", sa.Column("caps", JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False))
    op.add_column("attempts", sa.Column("preempted_by", sa.Text()))
    op.add_column("learners", sa.Column("saved_at", sa.DateTime(timezone=True)))
    op.add_column("jobs", sa.Column("place", sa.Integer()))
    op.create_table(
        "project_usage",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("average", sa.Float(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_project_usage_project_id_projects"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_project_usage")),
    )
    op.create_index(
        "ix_jobs_queue_project",
        "jobs",
        ["engine", "project_id", sa.text("priority desc"), "created_at", "id"],
        postgresql_where=sa.text("state = 'QUEUED'"),
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_queue_project", "jobs")
    op.drop_table("project_usage")
    op.drop_column("jobs", "place")
    op.drop_column("learners", "saved_at")
    op.drop_column("attempts", "preempted_by")
    for column in ("caps", "borrows", "guaranteed", "weight"):
        op.drop_column("projects", column)
