"""The audit trail, which only grows; and the users who cause events of jobs."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_ACTORS = "'token', 'session', 'password', 'learner', 'anonymous', 'system'"

# The retention sets weft.audit_expiry for its own transaction (weft_core.store.audit). Even so, nobody deletes a record
# of the last 30 days.
_APPEND_ONLY = """
create function audit_append_only() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' and current_setting('weft.audit_expiry', true) = 'on'
        and old.created_at < now() - interval '30 days' then
        return old;
    end if;
    raise exception 'the audit trail is append-only: % is refused', tg_op using errcode = 'insufficient_privilege';
end
$$
"""
# Before the statement, and so before the record gets its id: a transaction that holds this lock alone for a moment
# knows that no record with a smaller id than the newest is still to come. The number is weft_core.store.audit's.
_IN_ORDER = """
create function audit_in_order() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(1096107081);
    return null;
end
$$
"""
_TRIGGERS = (
    "create trigger audit_append_only before update or delete on audit "
    "for each row execute function audit_append_only()",
    "create trigger audit_no_truncate before truncate on audit for each statement execute function audit_append_only()",
    "create trigger audit_in_order before insert on audit for each statement execute function audit_in_order()",
)


def _text(name: str, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False)


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        _time("created_at"),
        _text("actor"),
        *(_text(name, nullable=True) for name in ("user_id", "user_name", "token_id")),
        *(_text(name) for name in ("address", "action")),
        *(_text(name, nullable=True) for name in ("object_kind", "object_id", "project_id", "project_name")),
        sa.Column("status", sa.Integer(), nullable=False),
        _text("request_id"),
        sa.Column("count", sa.Integer(), server_default="1", nullable=False),
        sa.CheckConstraint(f"actor in ({_ACTORS})", name=op.f("ck_audit_actor")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_created_at", "audit", ["created_at"])
    op.create_index("ix_audit_project_id_id", "audit", ["project_id", "id"])
    op.create_index("ix_audit_object_id", "audit", ["object_id"], postgresql_where=sa.text("object_id is not null"))
    for statement in (_APPEND_ONLY, _IN_ORDER, *_TRIGGERS):
        op.execute(statement)
    op.create_table(
        "audit_exports",
        _text("target"),
        sa.Column("last_id", sa.BigInteger(), nullable=False),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("target", name=op.f("pk_audit_exports")),
    )
    op.add_column("events", _text("user_id", nullable=True))
    op.create_foreign_key(op.f("fk_events_user_id_users"), "events", "users", ["user_id"], ["id"])


def downgrade() -> None:
    op.drop_constraint(op.f("fk_events_user_id_users"), "events")
    op.drop_column("events", "user_id")
    op.drop_table("audit_exports")
    op.drop_table("audit")
    op.execute("drop function audit_append_only()")
    op.execute("drop function audit_in_order()")
