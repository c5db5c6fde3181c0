"""Since when learners have shown no step, and the looks at a gang that shows none."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("look_at", sa.DateTime(timezone=True)))
    op.add_column("attempts", sa.Column("alive_at", sa.DateTime(timezone=True)))
    op.add_column("learners", sa.Column("still_since", sa.DateTime(timezone=True)))
    op.add_column("learners", sa.Column("pause_seconds", sa.Float()))


def downgrade() -> None:
    op.drop_column("learners", "pause_seconds")
    op.drop_column("learners", "still_since")
    op.drop_column("attempts", "alive_at")
    op.drop_column("attempts", "look_at")
