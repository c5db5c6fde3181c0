"""The keys that sign the identity tokens of learners."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("public", postgresql.JSONB(), nullable=False),
        sa.Column("private_ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("signs_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("signs_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("published_until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
    )


def downgrade() -> None:
    op.drop_table("signing_keys")
