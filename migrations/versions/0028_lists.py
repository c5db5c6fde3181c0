"""Lists at the speed of their page, not of their table.

Indexes for each order and condition of the lists of jobs, metrics and audit records; tables of the jobs' labels and
texts, of which an index finds the pieces; and views of one project, in which Postgres uses these indexes
(weft_core.store.row_security).

The indexes are built, and older jobs are listed, while other processes go on. Run again, it goes on where it
was stopped.
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_INDEXES = {
    "ix_jobs_of_all": "jobs (state)",
    "ix_jobs_state": "jobs (project_id, state, created_at desc, id desc)",
    "ix_jobs_user": "jobs (project_id, user_id, created_at desc, id desc)",
    "ix_jobs_engine": "jobs (project_id, engine, created_at desc, id desc)",
    "ix_jobs_name": "jobs (project_id, lower(name), created_at desc, id desc)",
    "ix_jobs_name_desc": "jobs (project_id, lower(name) desc, created_at desc, id desc)",
    "ix_jobs_experiment": "jobs (project_id, md5(name), created_at desc, id desc)",
    "ix_job_metrics_last": "job_metrics (project_id, name, last, job_id)",
    "ix_job_metrics_min": "job_metrics (project_id, name, min, job_id)",
    "ix_job_metrics_max": "job_metrics (project_id, name, max, job_id)",
    "ix_audit_user": "audit (user_name, id)",
    "ix_audit_action": "audit (action, id)",
    "ix_audit_project_user": "audit (project_id, user_name, id)",
    "ix_audit_project_action": "audit (project_id, action, id)",
    "ix_audit_project_name": "audit (project_name, id)",
    "ix_audit_refused": "audit (id) where status >= 400",
    "ix_audit_project_refused": "audit (project_id, id) where status >= 400",
    "ix_tokens_project_id": "tokens (project_id)",
}
# What they, and job_labels, make superfluous. Each change of a job has paid for ix_jobs_labels.
_SUPERFLUOUS = {
    "ix_jobs_labels": "jobs using gin (labels)",
    "ix_job_metrics_listing": "job_metrics (project_id, name)",
}
_VIEWS = {
    "project_jobs": "jobs: id, project_id, user_id, name, state, engine, created_at",
    "project_texts": "job_texts: job_id, project_id, created_at, body",
    "project_labels": "job_labels: job_id, project_id, key, value, created_at",
    "project_metrics": "job_metrics: job_id, project_id, name, last, min, max",
}

# Every piece of a text of one to three characters, as numbers: an index of numbers is small. That two pieces may have
# the same number does no harm, as what is found is compared. The project is in each, so that the jobs of other
# projects do not slow a search down.
_PIECES = """
create function weft_pieces(project text, body text) returns int[] language sql immutable parallel safe as $$
    select array(
        select distinct hashtext(project || ' ' || substr(body, first, size))
        from generate_series(1, length(body)) as first, generate_series(1, 3) as size
    )
$$
"""
# Of a text that is looked for, the longest pieces are enough.
_WANTED = """
create function weft_wanted_pieces(project text, body text) returns int[] language sql immutable parallel safe as $$
    select array(
        select distinct hashtext(project || ' ' || substr(body, first, least(length(body), 3)))
        from generate_series(1, greatest(length(body) - 2, 1)) as first
    )
$$
"""
_TEXTS = """
insert into job_texts (job_id, project_id, created_at, body)
select id, project_id, created_at, lower(name || E'\\n' || id || E'\\n' || coalesce(manifest ->> 'description', ''))
from {jobs} as job on conflict do nothing
"""
_LABELS = """
insert into job_labels (job_id, project_id, key, value, created_at)
select id, project_id, key, label, created_at from {jobs} as job, jsonb_each_text(labels) as each(key, label)
on conflict do nothing
"""
# The database writes them, as Weft's older version does not: as its owner, whom no policy binds.
_KEEP = f"""
create function weft_list_job() returns trigger language plpgsql security definer set search_path from current as $$
begin
    {_TEXTS.format(jobs="(select new.*)")};
    {_LABELS.format(jobs="(select new.*)")};
    return null;
end
$$
"""
_OLDER = "(select * from jobs where id > %(after)s and id <= %(last)s and kind = 'train' for key share)"
_LAST = "select max(id) from (select id from jobs where id > %(after)s order by id limit 5000) as batch"


def upgrade() -> None:
    if not sa.inspect(op.get_bind()).has_table("job_texts"):
        _create()
    with op.get_context().autocommit_block():
        for name, on in _INDEXES.items():
            _build(name, on)
        for name in _SUPERFLUOUS:
            op.execute(f"drop index concurrently if exists {name}")
        _list_older()
        # Without fastupdate each new job pays for itself, and no search has to go through what waits.
        _build("ix_job_texts_pieces", "job_texts using gin (weft_pieces(project_id, body)) with (fastupdate = off)")
        op.execute("alter index ix_job_texts_pieces alter column 1 set statistics 0")  # they would cost seconds
        op.execute("analyze jobs, job_texts, job_labels, job_metrics")


def _create() -> None:
    for table, *own in (
        ("job_texts", sa.Column("body", sa.Text(), nullable=False)),
        ("job_labels", sa.Column("key", sa.Text(), nullable=False), sa.Column("value", sa.Text(), nullable=False)),
    ):
        op.create_table(
            table,
            sa.Column("job_id", sa.Text(), nullable=False),
            *own,
            sa.Column("project_id", sa.Text(), nullable=False),
            sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
            sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f(f"fk_{table}_job_id_jobs"), ondelete="CASCADE"),
            sa.ForeignKeyConstraint(
                ["project_id"], ["projects.id"], name=op.f(f"fk_{table}_project_id_projects"), ondelete="CASCADE"
            ),
            sa.PrimaryKeyConstraint("job_id", *(c.name for c in own if c.name == "key"), name=op.f(f"pk_{table}")),
        )
        op.execute(f"create policy weft_project on {table} using (project_id = current_setting('weft.project', true))")
        op.execute(f"alter table {table} enable row level security")
    op.execute("create index ix_job_texts_listing on job_texts (project_id, created_at desc, job_id desc)")
    op.execute(
        "create index ix_job_labels_listing on job_labels (project_id, key, value, created_at desc, job_id desc)"
    )
    op.execute(_PIECES)
    op.execute(_WANTED)
    op.execute(_KEEP)
    op.execute(
        "create trigger weft_list_job after insert on jobs for each row when (new.kind = 'train')"
        " execute function weft_list_job()"
    )
    for name, what in _VIEWS.items():
        table, _, columns = what.partition(": ")
        train = " and kind = 'train'" if table == "jobs" else ""
        op.execute(
            f"create view {name} as select {columns} from {table}"  # noqa: S608
            f" where project_id = current_setting('weft.project', true){train}"
        )


def _build(name: str, on: str) -> None:
    """An index that is half built stays, invalid, when its building was stopped."""
    valid = sa.text("select indisvalid from pg_index where indexrelid = to_regclass(:name)")
    if op.get_bind().scalar(valid, {"name": name}) is False:
        op.execute(f"drop index concurrently {name}")
    op.execute(f"create index concurrently if not exists {name} on {on}")


def _list_older() -> None:
    """Batch by batch, each committed."""
    connection, after = op.get_bind(), ""
    while last := connection.exec_driver_sql(_LAST, {"after": after}).scalar():
        for statement in (_TEXTS, _LABELS):
            connection.exec_driver_sql(statement.format(jobs=_OLDER), {"after": after, "last": last})
        after = last


def downgrade() -> None:
    for name in _VIEWS:
        op.execute(f"drop view {name}")
    op.execute("drop trigger weft_list_job on jobs")
    op.execute("drop function weft_list_job()")
    op.drop_table("job_labels")
    op.drop_table("job_texts")
    op.execute("drop function weft_pieces(text, text)")
    op.execute("drop function weft_wanted_pieces(text, text)")
    with op.get_context().autocommit_block():
        for name, on in _SUPERFLUOUS.items():
            _build(name, on)
        for name in _INDEXES:
            op.execute(f"drop index concurrently if exists {name}")
