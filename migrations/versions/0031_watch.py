"""The watch over an engine's runs: when it is looked at next."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("queues", sa.Column("next_watch_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("queues", "next_watch_at")
