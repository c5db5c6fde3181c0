"""The stacks that learners report during a stall, and the verdict on it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("verdict", sa.Text()))
    op.add_column("learners", sa.Column("stacks", postgresql.JSONB()))
    op.add_column("learners", sa.Column("stacks_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("learners", "stacks_at")
    op.drop_column("learners", "stacks")
    op.drop_column("attempts", "verdict")
