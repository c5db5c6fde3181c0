"""Logs: an archive in S3, what is known of each source of lines, times as compact bytes."""

import struct
import zlib
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    time = sa.DateTime(timezone=True)
    for column in (
        sa.Column("archived", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("latest", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("paid_until", time),
    ):
        op.add_column("log_cursors", column)
    op.create_table(
        "log_sources",
        _job("log_sources"),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        _project("log_sources"),
        sa.Column("next_sequence", sa.BigInteger(), nullable=False),
        sa.Column("written_at", time, server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "attempt", "rank", name="pk_log_sources"),
    )
    op.create_table(
        "log_frames",
        _job("log_frames"),
        sa.Column("first_line", sa.BigInteger(), nullable=False),
        _project("log_frames"),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("ranks", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("latest", sa.BigInteger(), nullable=False),
        sa.Column("arrived_at", time, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "first_line", name="pk_log_frames"),
    )
    op.add_column("attempts", sa.Column("logs_due", time, server_default=sa.text("now()")))
    op.create_index(
        "ix_attempts_logs_due",
        "attempts",
        ["logs_due"],
        postgresql_where=sa.text("ended_at is not null and logs_due is not null"),
    )
    op.execute(
        "insert into log_sources (job_id, attempt, rank, project_id, next_sequence, written_at) "
        "select job_id, attempt, rank, min(project_id), max(sequence) + 1, max(created_at) "
        "from log_chunks group by job_id, attempt, rank"
    )
    op.drop_constraint("uq_log_chunks_job_id_attempt_rank_sequence", "log_chunks", type_="unique")
    op.drop_column("log_chunks", "sequence")
    _pack_times()
    op.create_index("ix_log_chunks_job_id_rank_first_line", "log_chunks", ["job_id", "rank", "first_line"])
    op.create_index("ix_log_chunks_job_id_latest", "log_chunks", ["job_id", "latest"])


def _job(table: str) -> sa.Column[Any]:
    key = sa.ForeignKey("jobs.id", ondelete="CASCADE", name=f"fk_{table}_job_id_jobs")
    return sa.Column("job_id", sa.Text(), key, nullable=False)


def _project(table: str) -> sa.Column[Any]:
    key = sa.ForeignKey("projects.id", ondelete="CASCADE", name=f"fk_{table}_project_id_projects")
    return sa.Column("project_id", sa.Text(), key, nullable=False)


def _pack_times() -> None:
    op.alter_column("log_chunks", "times", new_column_name="times_list")
    op.add_column("log_chunks", sa.Column("times", sa.LargeBinary()))
    op.add_column("log_chunks", sa.Column("latest", sa.BigInteger()))
    bind = op.get_bind()
    after, latest = ("", -1), 0
    query = sa.text(
        "select job_id, first_line, times_list from log_chunks where (job_id, first_line) > (:job, :line) "
        "order by job_id, first_line limit 500"
    )
    change = sa.text(
        "update log_chunks set times = :times, latest = :latest where job_id = :job and first_line = :line"
    )
    while rows := bind.execute(query, {"job": after[0], "line": after[1]}).all():
        packed = []
        for job, line, times in rows:
            latest = max([latest if job == after[0] else 0, *times])
            after = (job, line)
            deltas = [*times[:1], *(b - a for a, b in pairwise(times))]
            data = zlib.compress(struct.pack(f"<{len(deltas)}q", *deltas), 1)
            packed.append({"job": job, "line": line, "times": data, "latest": latest})
        bind.execute(change, packed)
    bind.execute(
        sa.text(
            "update log_cursors set latest = found.latest from "
            "(select job_id, max(latest) as latest from log_chunks group by job_id) as found "
            "where found.job_id = log_cursors.job_id"
        )
    )
    op.alter_column("log_chunks", "times", nullable=False)
    op.alter_column("log_chunks", "latest", nullable=False)
    op.drop_column("log_chunks", "times_list")


def downgrade() -> None:
    """What is in S3 stays there, out of sight; times of lines become those of their chunks."""
    op.drop_index("ix_log_chunks_job_id_latest", "log_chunks")
    op.drop_index("ix_log_chunks_job_id_rank_first_line", "log_chunks")
    op.drop_column("log_chunks", "times")
    op.add_column("log_chunks", sa.Column("times", JSONB()))
    op.execute(
        "update log_chunks set times = (select jsonb_agg(same.latest) from "
        "(select log_chunks.latest from generate_series(1, log_chunks.lines)) as same)"
    )
    op.alter_column("log_chunks", "times", nullable=False)
    op.drop_column("log_chunks", "latest")
    op.add_column("log_chunks", sa.Column("sequence", sa.BigInteger()))
    # Those of the newest chunks as they were, as far as an agent may still repeat them.
    op.execute(
        "update log_chunks set sequence = source.next_sequence - newest.place from log_sources as source, "
        "(select job_id, first_line, row_number() over (partition by job_id, attempt, rank order by first_line desc) "
        "as place from log_chunks) as newest where newest.job_id = log_chunks.job_id "
        "and newest.first_line = log_chunks.first_line and source.job_id = log_chunks.job_id "
        "and source.attempt = log_chunks.attempt and source.rank = log_chunks.rank"
    )
    op.alter_column("log_chunks", "sequence", nullable=False)
    op.create_unique_constraint(
        "uq_log_chunks_job_id_attempt_rank_sequence", "log_chunks", ["job_id", "attempt", "rank", "sequence"]
    )
    op.drop_index("ix_attempts_logs_due", "attempts")
    op.drop_column("attempts", "logs_due")
    op.drop_table("log_frames")
    op.drop_table("log_sources")
    for name in ("paid_until", "latest", "archived"):
        op.drop_column("log_cursors", name)
