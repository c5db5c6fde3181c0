"""Sessions of browsers: rows beside the API tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tokens", sa.Column("kind", sa.Text(), server_default="api", nullable=False))
    op.add_column("tokens", sa.Column("ends_at", sa.DateTime(timezone=True)))
    op.add_column("tokens", sa.Column("opened_with", sa.Text()))
    op.create_check_constraint("kind", "tokens", "kind in ('api', 'browser')")
    op.create_foreign_key(None, "tokens", "tokens", ["opened_with"], ["id"], ondelete="CASCADE")
    op.create_index("ix_tokens_opened_with", "tokens", ["opened_with"])


def downgrade() -> None:
    op.execute("delete from tokens where kind = 'browser'")
    for name in ("kind", "ends_at", "opened_with"):
        op.drop_column("tokens", name)
