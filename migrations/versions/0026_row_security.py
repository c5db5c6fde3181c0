"""Row-level security: of tables with a project_id, and of the projects, every role but their owner sees one project.

The policies do not bind the owner of the tables, as whom Weft connects, so earlier versions see no difference. The role
that they bind belongs to the cluster, not to the schema: weft_core.store.row_security makes it after the migrations.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_TABLES = """
select quote_ident(relname), attname from pg_class join pg_attribute on attrelid = pg_class.oid
where relnamespace = current_schema()::regnamespace and relkind = 'r' and not attisdropped
    and (attname = 'project_id' or relname = 'projects' and attname = 'id')
order by relname
"""


def upgrade() -> None:
    for table, column in op.get_bind().execute(sa.text(_TABLES)).all():
        op.execute(f"create policy weft_project on {table} using ({column} = current_setting('weft.project', true))")
        op.execute(f"alter table {table} enable row level security")


def downgrade() -> None:
    for table, _ in op.get_bind().execute(sa.text(_TABLES)).all():
        op.execute(f"alter table {table} disable row level security")
        op.execute(f"drop policy weft_project on {table}")
