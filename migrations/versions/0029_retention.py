"""Retention: what projects keep of ended jobs, and what was removed."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("projects", sa.Column("retention", JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False))
    op.add_column("projects", sa.Column("removed", JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False))
    op.add_column(
        "projects",
        sa.Column("retention_due", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
    )
    op.add_column("jobs", sa.Column("removed", JSONB()))
    op.create_index(
        "ix_jobs_ended", "jobs", ["project_id", "ended_at", "id"], postgresql_where=sa.text("ended_at is not null")
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_ended", "jobs")
    op.drop_column("jobs", "removed")
    for column in ("retention_due", "removed", "retention"):
        op.drop_column("projects", column)
