"""The files that a learner's program has left in the job's folder."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("learners", sa.Column("leftovers", postgresql.JSONB()))


def downgrade() -> None:
    op.drop_column("learners", "leftovers")
