"""Packages that jobs need besides their image's: overlays, and the jobs that build them."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def _text(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), **{"nullable": False, **options})


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False)


def upgrade() -> None:
    op.create_table(
        "overlays",
        *(_text(name) for name in ("id", "project_id", "key", "image", "engine")),
        _text("state", server_default="BUILDING"),
        _text("reason", server_default=""),
        sa.Column("manifest", JSONB(), nullable=False),
        _text("code_sha256", nullable=True),
        _text("job_id"),
        sa.Column("builds", sa.Integer(), server_default="1", nullable=False),
        sa.Column("lock", JSONB(), nullable=True),
        *(_text(name, nullable=True) for name in ("lock_sha256", "sha256")),
        sa.Column("size", sa.BigInteger(), nullable=True),
        *(_time("created_at"), _time("used_at")),
        sa.CheckConstraint("state in ('BUILDING', 'READY', 'FAILED', 'DROPPED')", name=op.f("ck_overlays_state")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_overlays_project_id_projects"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_overlays")),
    )
    op.create_index("ix_overlays_key", "overlays", ["project_id", "key"])
    op.add_column("jobs", _text("kind", server_default="train"))
    op.add_column("jobs", _text("overlay_id", nullable=True))
    op.create_foreign_key(op.f("fk_jobs_overlay_id_overlays"), "jobs", "overlays", ["overlay_id"], ["id"])
    op.create_index("ix_jobs_overlay_id", "jobs", ["overlay_id"], postgresql_where=sa.text("overlay_id is not null"))


def downgrade() -> None:
    # A build of packages is nothing that an older version of Weft could show or end.
    op.execute("delete from jobs where kind <> 'train'")
    op.drop_index("ix_jobs_overlay_id", "jobs")
    op.drop_constraint(op.f("fk_jobs_overlay_id_overlays"), "jobs")
    op.drop_column("jobs", "overlay_id")
    op.drop_column("jobs", "kind")
    op.drop_table("overlays")
