"""Learners that stay for a look inside after their command has failed."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("learners", sa.Column("kept_until", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("learners", "kept_until")
