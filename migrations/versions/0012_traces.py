"""The trace that a job's submission is part of."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("traceparent", sa.Text()))


def downgrade() -> None:
    op.drop_column("jobs", "traceparent")
