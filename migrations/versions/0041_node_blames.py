"""The ledger of nodes that were blamed for the end or the hang of a job."""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_blames",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("forgiven_at", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("engine", "node", "job", "attempt", name="uq_node_blames_attempt"),
    )


def downgrade() -> None:
    op.drop_table("node_blames")
