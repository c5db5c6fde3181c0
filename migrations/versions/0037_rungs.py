"""Trials that run in rungs: the rung of each, and its values at the ends of its rungs."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("rung", sa.Integer()))
    op.add_column("trials", sa.Column("results", ARRAY(sa.Double()), server_default="{}", nullable=False))


def downgrade() -> None:
    op.drop_column("trials", "results")
    op.drop_column("trials", "rung")
