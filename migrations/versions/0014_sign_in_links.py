"""Links that sign a browser in, once."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_TABLE = "sign_in_links"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=f"fk_{_TABLE}_project_id_projects", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name=f"fk_{_TABLE}_token_id_tokens", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sha256", name=f"pk_{_TABLE}"),
    )
    op.create_index(f"ix_{_TABLE}_token_id", _TABLE, ["token_id"])


def downgrade() -> None:
    op.drop_table(_TABLE)
