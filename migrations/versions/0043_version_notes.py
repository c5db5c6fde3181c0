"""What a project's users write down about a version of a model."""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("model_versions", sa.Column("notes", sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    op.drop_column("model_versions", "notes")
