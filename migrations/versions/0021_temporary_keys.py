"""Data stores of the installation's own, which issues temporary keys."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.alter_column("datastores", "secret_id", nullable=True)
    op.add_column("datastores", sa.Column("space", sa.Text()))
    op.create_check_constraint(op.f("ck_datastores_opened"), "datastores", "(secret_id is null) = (space is not null)")


def downgrade() -> None:
    op.drop_constraint(op.f("ck_datastores_opened"), "datastores")
    op.execute("delete from datastores where secret_id is null")
    op.drop_column("datastores", "space")
    op.alter_column("datastores", "secret_id", nullable=False)
