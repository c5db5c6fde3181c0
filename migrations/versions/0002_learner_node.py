"""Where a learner runs; when an engine's own queue last held an attempt back."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("learners", sa.Column("node", sa.Text()))
    op.add_column("attempts", sa.Column("held_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("attempts", "held_at")
    op.drop_column("learners", "node")
