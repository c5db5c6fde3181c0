"""Jobs that end with the program that launched them, or when they have been idle for long."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("keepalive_seconds", sa.Integer()))
    op.add_column("jobs", sa.Column("keepalive_until", sa.DateTime(timezone=True)))
    op.add_column("jobs", sa.Column("idle_seconds", sa.Integer()))
    op.add_column("learners", sa.Column("active_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("learners", "active_at")
    op.drop_column("jobs", "idle_seconds")
    op.drop_column("jobs", "keepalive_until")
    op.drop_column("jobs", "keepalive_seconds")
