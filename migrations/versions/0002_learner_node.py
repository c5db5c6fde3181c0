"""Where a learner runs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("learners", sa.Column("node", sa.Text()))


def downgrade() -> None:
    op.drop_column("learners", "node")
