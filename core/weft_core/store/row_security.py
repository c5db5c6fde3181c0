"""Row-level security: in a confined transaction Postgres itself shows the rows of one project only.

Each table with a ``project_id`` has the policy that this is ``weft.project`` (migration 0026). Weft connects as the
owner of the tables, whom policies do not bind, so workers, migrations and look-ups of tokens see everything. Opening a
:class:`weft_core.store.scope.Scope` in a session of a confining :class:`weft_core.store.database.Database` makes the
rest of the transaction run under a role that they do bind. A condition that a query lacks then finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog
from psycopg.pq import TransactionStatus
from sqlalchemy import FromClause, Table, TableClause, text
from sqlalchemy import column as a_column
from sqlalchemy import table as a_table
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from weft_core.store.models import AuditRecord, Base, EngineStatus, Project

_WALLS = "weft.walls"
_CONFINED = "weft.confined"

NOT_IN_FORCE = "row-level security is not in force"

# Both last until the transaction ends, so that a pool of connections (PgBouncer, too) hands on neither.
_CONFINE = "select set_config('weft.project', %s, true), set_config('role', %s, true)"
_RELEASE = "select set_config('role', 'none', true)"

_INSUFFICIENT_PRIVILEGE = "42501"
_EXISTS = ("42710", "23505")  # of a role, and of a row of the catalogue that somebody else has just written


def _view(name: str, columns: str) -> TableClause:
    return a_table(name, *(a_column(column) for column in columns.split()))


# Below a policy, Postgres uses an index only for conditions that reveal nothing about the rows that the policy hides:
# `=` and `<` of a column, but no search in texts and no condition on an expression. These views have the rights of
# their owner, so no policy is in them, and all indexes are of use. They show the transaction's project only.
VIEWS = {
    "jobs": _view("project_jobs", "id project_id user_id name state engine created_at started_at ended_at pinned"),
    "job_texts": _view("project_texts", "job_id project_id created_at body"),
    "job_labels": _view("project_labels", "job_id project_id key value created_at"),
    "job_metrics": _view("project_metrics", "job_id project_id name last min max"),
    "mlflow_runs": _view("project_params", "job_id project_id params"),
}
"""The views (migrations 0028 and 0035), by table."""


def own_tables() -> list[Table]:
    """The tables whose rows belong to projects, and the projects themselves: those with a policy."""
    every = Base.metadata.sorted_tables
    return [table for table in every if "project_id" in table.columns or table is Project.__table__]


def _privileges() -> list[tuple[str, str, str]]:
    """The privileges of a confined transaction: table, column or '' for all of them, and the privilege."""
    read = [model.__tablename__ for model in (AuditRecord, Project, EngineStatus)]
    read += [view.name for view in VIEWS.values()]
    written = [table.name for table in own_tables() if table.name not in read]
    every = [(name, "", privilege) for name in written for privilege in ("select", "insert", "update", "delete")]
    return [*every, *((name, "", "select") for name in read), ("users", "id", "select"), ("users", "name", "select")]


@dataclass(frozen=True)
class State:
    """Whether row-level security is in force, for the user that Weft connects as."""

    role: str
    """The role of confined transactions."""
    problem: str | None
    """Why it is not in force, and how to mend it; None: it is in force."""


class Walls:
    """The state of row-level security in one database, as this process last looked it up."""

    def __init__(self) -> None:
        self._state: State | None = None

    def of(self, connection: Connection) -> State:
        return self._state or self.again(connection)

    def again(self, connection: Connection) -> State:
        """Look it up again, and log why it is not in force. Not for a confined transaction, which may not look."""
        before, self._state = self._state, look_up(connection)
        if self._state.problem is not None and self._state != before:
            structlog.get_logger("weft.store").warning(NOT_IN_FORCE, reason=self._state.problem)
        return self._state


@dataclass(frozen=True)
class _Confined:
    project_id: str
    role: str | None  # none: row-level security is not in force, or not just now


def confining(walls: Walls) -> dict[str, object]:
    """The ``info`` of sessions whose scopes confine."""
    return {_WALLS: walls}


def confine(session: Session, project_id: str) -> None:
    """Let the rest of the transaction see this project only, if the session is of a confining database.

    Raises:
        RuntimeError: the transaction is confined to another project; or in a savepoint, whose rollback would lift it.
    """
    walls = session.info.get(_WALLS)
    confined: _Confined | None = session.info.get(_CONFINED)
    if walls is None or (confined is not None and confined.project_id == project_id):
        return
    if confined is not None:
        raise RuntimeError("a transaction is confined to one project: open the scope of the other in its own")
    if session.in_nested_transaction():
        raise RuntimeError("open the scope before the savepoint: its rollback would end the confinement")
    connection = session.connection()
    state = walls.of(connection)
    role = state.role if state.problem is None else None
    if role is not None:
        connection.exec_driver_sql(_CONFINE, (project_id, role))
    session.info[_CONFINED] = _Confined(project_id, role)


def view_of(session: Session, model: type[Base]) -> FromClause:
    """The view of a table in a confined transaction, else the table itself."""
    confined: _Confined | None = session.info.get(_CONFINED)
    return VIEWS[model.__tablename__] if confined is not None and confined.role is not None else model.__table__


@contextmanager
def across_projects(session: Session) -> Iterator[None]:
    """For the few statements that a project's request makes about other projects' rows, such as its place in a queue.

    They must not show what belongs to others. Outside a confined transaction it changes nothing.
    """
    confined: _Confined | None = session.info.get(_CONFINED)
    if confined is None or confined.role is None:
        yield
        return
    session.flush()
    session.connection().exec_driver_sql(_RELEASE)
    session.info[_CONFINED] = replace(confined, role=None)
    try:
        yield
        session.flush()
    finally:
        session.info[_CONFINED] = confined
        connection = session.connection()
        driver = connection.connection.driver_connection
        assert driver is not None
        # After an error of Postgres's, the transaction takes no statement any more but its rollback.
        if driver.info.transaction_status != TransactionStatus.INERROR:
            connection.exec_driver_sql(_CONFINE, (confined.project_id, confined.role))


# --- setting it up -----------------------------------------------------------------------------------------------


def ensure(connection: Connection) -> State:
    """Make the role, and give it its privileges, as far as the database's user may. Part of every migration to the
    newest schema, so that it also mends a database that was restored in another cluster."""
    state = look_up(connection)
    if state.problem is None:
        return state
    role = state.role
    if not _exists(connection, role):
        _try(connection, f"create role {role} nologin")
    if not _exists(connection, role):
        return state
    if not _is_member(connection, role):
        _try(connection, f"grant {role} to current_user")
    schema = connection.scalar(text("select quote_ident(current_schema())"))
    _try(connection, f"grant usage on schema {schema} to {role}")
    for table, column, privilege in _missing(connection, role):
        _try(connection, f"grant {privilege} {f'({column})' if column else ''} on {table} to {role}")
    return look_up(connection)


def _exists(connection: Connection, role: str) -> bool:
    return bool(connection.scalar(text("select exists (select from pg_roles where rolname = :role)"), {"role": role}))


def _try(connection: Connection, statement: str) -> None:
    """Execute a statement that needs a privilege, or that another process may execute at the same time."""
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(statement)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) not in (_INSUFFICIENT_PRIVILEGE, *_EXISTS):
            raise


def look_up(connection: Connection) -> State:
    """Whether confined transactions are possible, and each table's policy binds them."""
    installation = connection.scalar(text("select id from installation"))
    if installation is None:
        return State("", "the migrations have not run: run `python -m weft_core.store.migrate`")
    role = f"weft_scoped_{installation.partition('-')[2]}"
    return State(role, _problem(connection, role))


_ROLE = "select rolsuper or rolbypassrls from pg_roles where rolname = :role"
_OPEN = """
select name from unnest(cast(:tables as text[])) as name
where not coalesce((select relrowsecurity from pg_class where oid = to_regclass(quote_ident(name))), false)
    or not exists (select from pg_policy where polrelid = to_regclass(quote_ident(name)))
    or (select pg_has_role(:role, relowner, 'member') from pg_class where oid = to_regclass(quote_ident(name)))
order by name
"""
_BOUND = """
select name from unnest(cast(:tables as text[])) as name
where row_security_active(to_regclass(quote_ident(name))::oid) order by name
"""
_MISSING = """
select name, part, privilege
from unnest(cast(:tables as text[]), cast(:columns as text[]), cast(:privileges as text[]))
    as wanted(name, part, privilege)
where not case part when '' then has_table_privilege(:role, quote_ident(name), privilege)
    else has_column_privilege(:role, quote_ident(name), part, privilege) end
order by name, part, privilege
"""


def _problem(connection: Connection, role: str) -> str | None:
    again = "then run `python -m weft_core.store.migrate`, and start the API again"
    bypasses = connection.scalar(text(_ROLE), {"role": role})
    user = connection.scalar(text("select quote_ident(current_user)"))
    if bypasses is None:
        made = f"CREATE ROLE {role} NOLOGIN; GRANT {role} TO {user};"
        return f"the role {role} is missing, and {user} may not make it. Let an administrator run `{made}`, {again}"
    if bypasses:
        return f"the role {role} must be neither SUPERUSER nor BYPASSRLS"
    if not _is_member(connection, role):
        return f"{user} may not use the role {role}: let an administrator run `GRANT {role} TO {user};`, {again}"
    tables = [table.name for table in own_tables()]
    if bound := connection.scalars(text(_BOUND), {"tables": tables}).all():
        return f"{user} does not own these tables, so it finds nothing in them: {', '.join(bound)}"
    if unguarded := connection.scalars(text(_OPEN), {"tables": tables, "role": role}).all():
        return f"no policy binds the role {role} in these tables: {', '.join(unguarded)}"
    if missing := _missing(connection, role):
        tables = sorted({table for table, _, _ in missing})
        return f"the role {role} lacks privileges on these tables: {', '.join(tables)}; {again}"
    return None


def _missing(connection: Connection, role: str) -> list[tuple[str, str, str]]:
    tables, columns, privileges = map(list, zip(*_privileges(), strict=True))
    parameters = {"tables": tables, "columns": columns, "privileges": privileges, "role": role}
    return [(row[0], row[1], row[2]) for row in connection.execute(text(_MISSING), parameters)]


def _is_member(connection: Connection, role: str) -> bool:
    """Whether the user may SET ROLE. Before Postgres 16 each member may."""
    version = connection.dialect.server_version_info or (0,)
    how = "set" if version >= (16,) else "member"
    query = text("select pg_has_role(oid, :how) from pg_roles where rolname = :role")
    return bool(connection.scalar(query, {"role": role, "how": how}))
