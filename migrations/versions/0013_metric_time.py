"""When a job's newest metrics were measured."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job_metrics", sa.Column("time", sa.BigInteger()))


def downgrade() -> None:
    op.drop_column("job_metrics", "time")
