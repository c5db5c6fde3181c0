"""Engines of any type: which there are is the settings' business, so that a new one needs no migration."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_NAME = "ck_engines_type"


def upgrade() -> None:
    op.drop_constraint(op.f(_NAME), "engines", type_="check")


def downgrade() -> None:
    known = ("local", "ray", "kubernetes")
    engines = sa.table("engines", sa.column("type", sa.Text()))
    op.execute(engines.delete().where(engines.c.type.not_in(known)))  # what was last seen of them; no job refers to it
    op.create_check_constraint(op.f(_NAME), "engines", f"type in {known}")
