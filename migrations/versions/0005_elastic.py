"""Elastic attempts: rounds of a gang that changes, and learners that leave it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0003"
branch_labels = None
depends_on = None

_TIMES = ("launched_at", "arrived_at", "broken_at", "left_at")


def upgrade() -> None:
    op.create_table(
        "rounds",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column(
            "members",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column("restart", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_rounds_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_rounds_project_id_projects"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "n", name=op.f("pk_rounds")),
    )
    for name in _TIMES:
        op.add_column("learners", sa.Column(name, sa.DateTime(timezone=True)))
    op.add_column("learners", sa.Column("arrived", sa.Integer()))
    op.add_column("learners", sa.Column("broken", sa.Integer()))
    op.add_column("learners", sa.Column("left_reason", sa.Text()))
    op.add_column("attempts", sa.Column("grow_at", sa.DateTime(timezone=True)))
    op.execute(
        "update learners set launched_at = attempts.launched_at from attempts where attempts.id = learners.attempt_id"
    )


def downgrade() -> None:
    op.drop_column("attempts", "grow_at")
    for name in ("left_reason", "broken", "arrived", *reversed(_TIMES)):
        op.drop_column("learners", name)
    op.drop_table("rounds")
