"""The registry of models; what an attempt read and left; the model version that a job starts from."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0004"
branch_labels = None
depends_on = None


def _project(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["project_id"], ["projects.id"], name=f"fk_{table}_project_id_projects", ondelete="CASCADE"
    )


def _user(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=f"fk_{table}_user_id_users")


def _model(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=f"fk_{table}_model_id_models", ondelete="CASCADE")


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False)


def upgrade() -> None:
    op.create_table(
        "models",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("counter", sa.Integer(), server_default="0", nullable=False),
        _time("created_at"),
        _time("updated_at"),
        _project("models"),
        sa.PrimaryKeyConstraint("id", name="pk_models"),
        sa.UniqueConstraint("project_id", "name", name="uq_models_project_id_name"),
    )
    op.create_table(
        "model_versions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("datastore", sa.Text(), nullable=True),
        sa.Column("endpoint", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("secret_id", sa.Text(), nullable=True),
        sa.Column("container", sa.Text(), nullable=True),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("files", JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("lineage", JSONB(astext_type=sa.Text()), nullable=False),
        _time("created_at"),
        _project("model_versions"),
        _model("model_versions"),
        _user("model_versions"),
        sa.ForeignKeyConstraint(["secret_id"], ["secrets.id"], name="fk_model_versions_secret_id_secrets"),
        sa.PrimaryKeyConstraint("id", name="pk_model_versions"),
        sa.UniqueConstraint("model_id", "number", name="uq_model_versions_model_id_number"),
        sa.UniqueConstraint("model_id", "job_id", name="uq_model_versions_model_id_job_id"),
    )
    op.create_index("ix_model_versions_job_id", "model_versions", ["job_id"])
    op.create_index(
        "ix_model_versions_parent_id",
        "model_versions",
        ["parent_id"],
        postgresql_where=sa.text("parent_id is not null"),
    )
    op.create_table(
        "model_promotions",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=False),
        _time("created_at"),
        _project("model_promotions"),
        _model("model_promotions"),
        _user("model_promotions"),
        sa.PrimaryKeyConstraint("id", name="pk_model_promotions"),
    )
    op.create_index("ix_model_promotions_stage", "model_promotions", ["model_id", "stage", sa.text("id desc")])
    # Columns that may be null, so that code of the version before goes on inserting.
    op.add_column("attempts", sa.Column("inputs", JSONB(astext_type=sa.Text())))
    op.add_column("attempts", sa.Column("outputs", JSONB(astext_type=sa.Text())))
    op.add_column("jobs", sa.Column("pretrained_id", sa.Text()))
    op.create_index(
        "ix_jobs_pretrained_id", "jobs", ["pretrained_id"], postgresql_where=sa.text("pretrained_id is not null")
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_pretrained_id", "jobs")
    op.drop_column("jobs", "pretrained_id")
    op.drop_column("attempts", "outputs")
    op.drop_column("attempts", "inputs")
    op.drop_table("model_promotions")
    op.drop_table("model_versions")
    op.drop_table("models")
