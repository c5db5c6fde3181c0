"""The trial whose checkpoint a trial began with; and the jobs that begin with a job's checkpoint, by that job."""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("parent", sa.Integer()))
    op.create_index(
        "ix_jobs_checkpoint_of",
        "jobs",
        [sa.text("(checkpoint_of ->> 'job')")],
        postgresql_where=sa.text("checkpoint_of is not null"),
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_checkpoint_of", "jobs")
    op.drop_column("trials", "parent")
