"""Whether an attempt makes progress, and which checkpoint it began with."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("checkpoint_of", JSONB()))
    op.add_column("attempts", sa.Column("started_from", JSONB()))
    for name in ("no_output_at", "stalled_at", "stalled_since"):
        op.add_column("attempts", sa.Column(name, sa.DateTime(timezone=True)))
    op.add_column("learners", sa.Column("idle_since", sa.DateTime(timezone=True)))
    op.add_column("learners", sa.Column("wrote", sa.Boolean()))


def downgrade() -> None:
    op.drop_column("learners", "wrote")
    op.drop_column("learners", "idle_since")
    for name in ("stalled_since", "stalled_at", "no_output_at", "started_from"):
        op.drop_column("attempts", name)
    op.drop_column("jobs", "checkpoint_of")
