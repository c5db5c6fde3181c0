"""One pass of admission for each engine: what asks for a pass, and what the last one has found.

Waiting jobs have no step of their own any more. Rows of earlier versions need no change: the first pass takes them
over.
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "queue_changes",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queue_changes")),
    )
    op.create_table(
        "queues",
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("passed_at", sa.DateTime(timezone=True)),
        sa.Column("took", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_pass_at", sa.DateTime(timezone=True)),
        sa.Column("next_look_at", sa.DateTime(timezone=True)),
        sa.Column("noted_at", sa.DateTime(timezone=True)),
        sa.Column("seen", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("unready", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("wanted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.PrimaryKeyConstraint("engine", name=op.f("pk_queues")),
    )


def downgrade() -> None:
    # Waiting jobs have to have steps of their own again.
    op.execute("update jobs set next_step_at = now() where state = 'QUEUED' and next_step_at is null")
    op.drop_table("queues")
    op.drop_table("queue_changes")
