"""Tokens that may do less than their users, and service accounts of projects."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tokens", sa.Column("role", sa.Text()))
    op.add_column("users", sa.Column("service_of", sa.Text()))
    project = ["service_of"], ["id"]
    op.create_foreign_key(op.f("fk_users_service_of_projects"), "users", "projects", *project, ondelete="CASCADE")
    op.create_index(op.f("ix_users_service_of"), "users", ["service_of"])
    op.create_check_constraint(op.f("ck_tokens_role"), "tokens", "role in ('owner', 'editor', 'viewer')")


def downgrade() -> None:
    # Code that knows no service accounts would take them for people. Their jobs keep them.
    op.execute("delete from members where user_id in (select id from users where service_of is not null)")
    op.execute("update users set disabled_at = coalesce(disabled_at, now()) where service_of is not null")
    op.drop_column("users", "service_of")
    # Code that knows no roles of tokens would give these all rights of their users.
    op.execute("update tokens set revoked_at = now() where role is not null and revoked_at is null")
    op.drop_constraint(op.f("ck_tokens_role"), "tokens")
    op.drop_column("tokens", "role")
