"""Tunnels: whether a project lets its editors into running jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("projects", sa.Column("tunnels", sa.Boolean(), server_default=sa.text("true"), nullable=False))


def downgrade() -> None:
    op.drop_column("projects", "tunnels")
