"""Users of identity providers, roles by their groups, and sign-ins of programs by a code."""

from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_BEFORE = "'token', 'session', 'password', 'learner', 'anonymous', 'system'"


def _time(name: str, nullable: bool = False) -> sa.Column[datetime]:
    default = None if nullable else sa.func.now()
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, server_default=default)


def upgrade() -> None:
    op.add_column("members", sa.Column("issuer", sa.Text()))
    op.create_table(
        "identities",
        sa.Column("issuer", sa.Text(), primary_key=True),
        sa.Column("subject", sa.Text(), primary_key=True),
        sa.Column("user_id", sa.Text(), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
        _time("created_at"),
        _time("last_used_at"),
    )
    op.create_table(
        "device_logins",
        sa.Column("device_sha256", sa.Text(), primary_key=True),
        sa.Column("user_code", sa.Text(), nullable=False, unique=True),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("project", sa.Text()),
        _time("created_at"),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False, index=True),
        _time("polled_at", nullable=True),
        _time("denied_at", nullable=True),
        sa.Column("confirmed_with", sa.Text(), sa.ForeignKey("tokens.id", ondelete="CASCADE"), index=True),
    )
    op.drop_constraint(op.f("ck_audit_actor"), "audit")
    op.create_check_constraint(op.f("ck_audit_actor"), "audit", f"actor in ({_BEFORE}, 'provider')")


def downgrade() -> None:
    op.drop_constraint(op.f("ck_audit_actor"), "audit")
    # Records are never changed, so those of the kind that goes stay.
    op.execute(f"alter table audit add constraint ck_audit_actor check (actor in ({_BEFORE})) not valid")
    op.drop_table("device_logins")
    op.drop_table("identities")
    # Nobody would take these roles away any more.
    op.execute("delete from members where issuer is not null")
    op.drop_column("members", "issuer")
