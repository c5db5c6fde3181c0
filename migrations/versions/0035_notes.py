"""Jobs that their users describe, pin and find again after the submission.

Notes and pins of jobs, saved views of lists; indexes for the order by duration and for parameters. A trigger keeps the
tables that lists search in step with labels and descriptions that change.

The indexes are built while other processes go on. Run again, it goes on where it was stopped.
"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

_INDEXES = {
    "ix_jobs_pinned": "jobs (project_id, created_at desc, id desc) where pinned",
    "ix_jobs_duration": (
        "jobs (project_id, (ended_at - started_at), id) where started_at is not null and ended_at is not null"
    ),
    "ix_jobs_running": "jobs (project_id, started_at, id) where started_at is not null and ended_at is null",
    "ix_jobs_unstarted": "jobs (project_id, created_at desc, id desc) where started_at is null",
    "ix_attempts_ended": "attempts (ended_at) where ended_at is not null",
    # Each change of a run's parameters pays for itself, and no search has to go through what waits.
    "ix_mlflow_runs_params": "mlflow_runs using gin (weft_params(project_id, params)) with (fastupdate = off)",
}

# Parameters and their values as numbers. The project is in each, so that other projects do not slow a search down.
_PARAMS = """
create function weft_params(project text, params jsonb) returns int[] language sql immutable parallel safe as $$
    select array(
        select distinct hashtext(project || ' ' || key || '=' || (entry ->> 0))
        from jsonb_each(params) as each(key, entry)
    )
$$
"""
_RELIST = """
create function weft_relist_job() returns trigger language plpgsql security definer set search_path from current as $$
begin
    update job_texts
    set body = lower(new.name || E'\\n' || new.id || E'\\n' || coalesce(new.manifest ->> 'description', ''))
    where job_id = new.id;
    delete from job_labels where job_id = new.id;
    insert into job_labels (job_id, project_id, key, value, created_at)
    select new.id, new.project_id, key, label, new.created_at from jsonb_each_text(new.labels) as each(key, label);
    return null;
end
$$
"""
_JOBS = "id, project_id, user_id, name, state, engine, created_at"


def upgrade() -> None:
    if not sa.inspect(op.get_bind()).has_table("views"):
        _create()
    with op.get_context().autocommit_block():
        for name, on in _INDEXES.items():
            _build(name, on)


def _create() -> None:
    op.add_column("jobs", sa.Column("notes", sa.Text(), server_default="", nullable=False))
    op.add_column("jobs", sa.Column("pinned", sa.Boolean(), server_default="false", nullable=False))
    op.create_table(
        "views",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_views_project_id_projects"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_views_user_id_users")),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_views")),
    )
    op.execute("create policy weft_project on views using (project_id = current_setting('weft.project', true))")
    op.execute("alter table views enable row level security")
    op.execute(_PARAMS)
    op.execute(_RELIST)
    # The sessions that change the state of jobs set neither column, so that they do not pay for it.
    op.execute(
        "create trigger weft_relist_job after update of labels, manifest on jobs for each row"
        " when (new.kind = 'train' and (old.labels is distinct from new.labels"
        " or old.manifest ->> 'description' is distinct from new.manifest ->> 'description'))"
        " execute function weft_relist_job()"
    )
    _view("project_jobs", f"{_JOBS}, started_at, ended_at, pinned", "jobs", "and kind = 'train'")
    _view("project_params", "id as job_id, project_id, params", "mlflow_runs", "and job_id = id")


def _view(name: str, columns: str, table: str, condition: str) -> None:
    op.execute(
        f"create or replace view {name} as select {columns} from {table}"  # noqa: S608
        f" where project_id = current_setting('weft.project', true) {condition}"
    )


def _build(name: str, on: str) -> None:
    """An index that is half built stays, invalid, when its building was stopped."""
    half = sa.text("select not indisvalid from pg_index where indexrelid = to_regclass(:name)")
    if op.get_bind().scalar(half, {"name": name}):
        op.execute(f"drop index concurrently {name}")
    op.execute(f"create index concurrently if not exists {name} on {on}")


def downgrade() -> None:
    op.execute("drop index ix_mlflow_runs_params")
    for name in list(_INDEXES)[:-1]:
        op.execute(f"drop index {name}")
    op.execute("drop view project_params")
    op.execute("drop view project_jobs")
    _view("project_jobs", _JOBS, "jobs", "and kind = 'train'")
    op.execute("drop trigger weft_relist_job on jobs")
    op.execute("drop function weft_relist_job()")
    op.execute("drop function weft_params(text, jsonb)")
    op.drop_table("views")
    op.drop_column("jobs", "pinned")
    op.drop_column("jobs", "notes")
