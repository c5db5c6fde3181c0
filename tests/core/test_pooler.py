"""Weft behind PgBouncer, which gives each transaction another connection: nothing may rely on the one before."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr, ValidationError
from sqlalchemy import text
from sqlalchemy.exc import OperationalError, ProgrammingError
from tests import pooler as pooling
from tests.pooler import Pooler
from tests.servers import Servers

from weft_core import postgres_url
from weft_core.settings import Settings
from weft_core.store import migrate
from weft_core.store.database import Database
from weft_core.store.scope import Scope

_CONNECTIONS = 3
_PID = text("select pg_backend_pid()")


@pytest.fixture(scope="module")
def pooler(servers: Servers) -> Iterator[Pooler]:
    if pooling.program() is None:
        pytest.skip("NOT RUN: no PgBouncer here (Debian: apt install pgbouncer)")
    part = Pooler(servers.postgres, servers.folder / "pooler", connections=_CONNECTIONS)
    part.start()
    yield part
    part.stop()


def _name(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url.replace("+psycopg", ""))["dbname"])


def _move(pooler: Pooler, database: str, *, pooled: bool) -> tuple[int, int]:
    """Execute a statement until psycopg prepares it, and then on another connection, as the first one is taken.
    Returns the processes of both."""
    url = pooler.url_of(database, pooled=pooled)
    one, other = Database(url, pool_size=1), Database(url, pool_size=1)
    try:
        for _ in range(8):
            with one.transaction() as session:
                before = session.scalar(_PID)
        with other.transaction() as session:
            assert session.scalar(text("select 1")) == 1
            with one.transaction() as moved:
                return before, moved.scalar(_PID)
    finally:
        one.close()
        other.close()


def test_a_statement_works_on_whichever_connection_it_gets(pooler: Pooler, database_url: str) -> None:
    before, after = _move(pooler, _name(database_url), pooled=True)
    assert before != after


def test_many_processes_share_its_few_connections(pooler: Pooler, database_url: str) -> None:
    name = _name(database_url)
    databases = [Database(pooler.url_of(name), pool_size=1) for _ in range(4 * _CONNECTIONS)]
    for database in databases:
        with database.transaction() as session:
            session.scalar(_PID)
    assert pooler.count("clients", name) == len(databases)
    assert 0 < pooler.count("servers", name) <= _CONNECTIONS
    for database in databases:
        database.close()


def test_without_the_mark_in_the_url_it_does_not(pooler: Pooler, database_url: str) -> None:
    """This is what the mark is for."""
    with pytest.raises(ProgrammingError, match=r"prepared statement .* does not exist"):
        _move(pooler, _name(database_url), pooled=False)


def test_no_transaction_has_the_project_of_another_one(pooler: Pooler, database_url: str) -> None:
    """More transactions than connections: each connection served both projects."""
    database = Database(pooler.url_of(_name(database_url)), pool_size=2, confines=True)
    with database.transaction() as session:
        session.execute(text("insert into projects (id, name) values ('prj-a', 'a'), ('prj-b', 'b')"))
    place = text("select current_setting('weft.project', true), current_user")
    for number in range(12):
        project = f"prj-{'ab'[number % 2]}"
        with database.transaction() as session:
            Scope(session, project)
            seen = session.execute(place).one()
        assert seen[0] == project
        assert str(seen[1]).startswith("weft_scoped_")
        with database.transaction() as session:
            assert session.execute(place).one() in [("", "weft"), (None, "weft")]
    database.close()


def test_postgres_behind_it_goes_away_and_comes_back(pooler: Pooler, servers: Servers, database_url: str) -> None:
    """PgBouncer lets a client wait, by default for two minutes; the API would answer none of its requests meanwhile."""
    name = _name(database_url)
    database = Database(pooler.url_of(name), pool_size=1)
    with database.transaction() as session:
        session.scalar(_PID)
    with servers.postgres.connect() as connection:
        connection.execute(f"alter database {name} allow_connections false".encode())
        connection.execute("select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = %s", [name])
    with pytest.raises(OperationalError), database.transaction() as session:
        session.scalar(_PID)
    with servers.postgres.connect() as connection:
        connection.execute(f"alter database {name} allow_connections true".encode())

    def answers() -> bool:
        try:
            with database.transaction() as session:
                return bool(session.scalar(_PID))
        except OperationalError:  # PgBouncer tries again in a second
            return False

    while not answers():
        time.sleep(0.1)
    database.close()


def test_a_database_is_migrated_through_it(pooler: Pooler, servers: Servers) -> None:
    with servers.without_schema() as url:
        database = Database(pooler.url_of(_name(url)))
        assert migrate.upgrade(database.engine) is None
        migrate.check(database.engine)
        database.close()
        with pooler.console() as console:  # or the database could not be dropped
            console.execute(f"kill {_name(url)}".encode())


def test_the_lock_of_a_backup_needs_a_direct_connection(pooler: Pooler, database_url: str, tmp_path: Path) -> None:
    done = tmp_path / "done"
    environment = {"WEFT_DATABASE_URL": pooler.url_of(_name(database_url)), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "weft_core.store.backups", "touch", str(done)]
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout, done.exists()) == (2, "", False)
    assert refused.stderr.startswith("database_url: this needs a direct connection to Postgres")


def test_a_url_for_each_library() -> None:
    given = "postgresql://weft:p%40ss@db:6432/weft?sslmode=require&pgbouncer=true"
    assert postgres_url.is_pooled(given)
    assert postgres_url.for_libpq(given) == "postgresql://weft:p%40ss@db:6432/weft?sslmode=require"
    assert postgres_url.for_sqlalchemy(given) == "postgresql+psycopg://weft:p%40ss@db:6432/weft?sslmode=require"
    assert postgres_url.for_libpq("postgresql+psycopg:///weft?pgbouncer=false") == "postgresql:///weft"
    assert not postgres_url.is_pooled("postgresql+psycopg:///weft?pgbouncer=false")


def test_another_value_is_refused_without_showing_the_password() -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(database_url=SecretStr("postgresql://weft:secret@db/weft?pgbouncer=yes"))
    problem = refused.value.errors(include_input=False)[0]
    assert problem["loc"] == ("database_url",)
    assert "'pgbouncer=yes': expected pgbouncer=true or pgbouncer=false" in problem["msg"]
    assert "secret" not in problem["msg"]
