"""Databases with the newest schema, one for each test that asks: a database that a test has left is emptied, not made
anew. Making one copies and deletes a thousand files, which takes 0.5 s of a core."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import psycopg
from psycopg import sql

from weft_core.store import migrate
from weft_core.store.database import Database
from weft_embedded.servers import PostgresServer

_TEMPLATE = "weft_template"
_PATIENCE = 60_000
"""Milliseconds for which a connection of a test may take to end."""

_GROWTH = 2 << 20
"""Bytes by which a database may grow: what is deleted stays in its files, and slows later tests down."""
_STATISTICS = "pg_statistic where starelid in (select oid from pg_class where relnamespace = 'public'::regnamespace)"
_CATALOGS = (
    *("pg_class", "pg_attribute", "pg_attrdef", "pg_constraint", "pg_policy", "pg_proc", "pg_trigger", "pg_type"),
    _STATISTICS,
)
_SCHEMA = sql.SQL(
    "select array[" + ", ".join(f"(select sum(xmin::text::bigint + 1) from {name})" for name in _CATALOGS) + "]"
)
"""Another value after any change of the schema or of the tables' statistics, by which Postgres plans: each row of the
catalogs has the number of its transaction."""
_UNCHANGED = """
    select datallowconn and datconnlimit = -1 and datacl is null
      and not exists (select from pg_db_role_setting where setdatabase = pg_database.oid)
    from pg_database where datname = %s
"""
_SIZE = "select sum(pg_relation_size(oid)) from pg_class where relnamespace = 'public'::regnamespace"


@dataclass(frozen=True)
class _Made:
    """A database as it was made."""

    name: str
    schema: object
    size: int


class Databases:
    """The databases of one server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._kept: dict[str, bytes] = {}
        """The rows that migrations make, by table."""
        self._spare: list[_Made] = []

    @contextmanager
    def url(self) -> Iterator[str]:
        """The URL of an empty database with the newest schema. Nobody else ever gets this URL."""
        name = f"weft_{next(self._numbers)}"
        made = self._spare.pop() if self._spare else self._clone(f"spare_{name}")
        with self._server.connect() as connection:
            _rename(connection, made.name, name)
        yield self._server.url_of(name)
        made = replace(made, name=f"spare_{name}")
        with self._server.connect() as connection:
            _rename(connection, name, made.name)
            if connection.execute(_UNCHANGED, [made.name]).fetchone() == (True,) and self._empty(made):
                self._spare.append(made)
            else:
                connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(made.name)))

    @contextmanager
    def without_schema(self) -> Iterator[str]:
        """The URL of a database without any table."""
        name = sql.Identifier(f"weft_{next(self._numbers)}")
        with self._server.connect() as connection:
            connection.execute(sql.SQL("create database {}").format(name))
        yield self._server.url_of(name.as_string().strip('"'))
        with self._server.connect() as connection:
            connection.execute(sql.SQL("drop database {} with (force)").format(name))

    @cached_property
    def _template(self) -> str:
        with self._server.connect() as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(_TEMPLATE)))
        database = Database(self._server.url_of(_TEMPLATE))
        migrate.upgrade(database.engine)
        database.close()
        return _TEMPLATE

    def _clone(self, name: str) -> _Made:
        template = sql.Identifier(self._template)
        statement = sql.SQL("create database {} template {} strategy file_copy").format(sql.Identifier(name), template)
        with self._server.connect() as connection:
            connection.execute(statement)
        with self._server.connect(name) as connection:
            self._kept = self._kept or _rows(connection, _filled(connection))
            return _Made(name, _value(connection, _SCHEMA), _value(connection, _SIZE))

    def _empty(self, made: _Made) -> bool:
        """Delete what a test has written; False if that would not make the database as it was."""
        kept = self._kept
        with self._server.connect(made.name) as connection:
            if _value(connection, _SCHEMA) != made.schema or _value(connection, _SIZE) > made.size + _GROWTH:
                return False
            changed = [table for table, rows in _rows(connection, list(kept)).items() if rows != kept[table]]
            # One transaction, in which foreign keys and triggers do not count.
            connection.execute("begin; set local session_replication_role = replica")
            for table in [*changed, *(table for table in _filled(connection) if table not in kept)]:
                connection.execute(sql.SQL("delete from {}").format(sql.Identifier(table)))
            for table in changed:
                with connection.cursor().copy(sql.SQL("copy {} from stdin").format(sql.Identifier(table))) as rows:
                    rows.write(kept[table])
            connection.execute("commit")
            connection.execute(
                "select setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) "
                "from pg_sequences where last_value is not null"
            )
        return True


def _rename(connection: psycopg.Connection, old: str, new: str) -> None:
    """Also ends what a test has left connected. A thread of its that connects once more finds no such database."""
    statement = sql.SQL("alter database {} rename to {}").format(sql.Identifier(old), sql.Identifier(new))
    while True:
        _end_connections(connection, old)
        try:
            connection.execute(statement)
            return
        except psycopg.errors.ObjectInUse:  # it has connected meanwhile
            continue


def _end_connections(connection: psycopg.Connection, name: str) -> None:
    connection.execute(
        "select pg_terminate_backend(pid, %s) from pg_stat_activity where datname = %s", [_PATIENCE, name]
    )


def _value(connection: psycopg.Connection, query: Any) -> Any:
    found = connection.execute(query).fetchone()
    return found[0] if found else None


def _tables(connection: psycopg.Connection) -> list[str]:
    found = connection.execute("select tablename from pg_tables where schemaname = 'public' order by 1")
    return [name for (name,) in found]


def _filled(connection: psycopg.Connection) -> list[str]:
    """The tables that have rows."""
    each = [
        sql.SQL("select {} where exists (select from {})").format(sql.Literal(name), sql.Identifier(name))
        for name in _tables(connection)
    ]
    return [name for (name,) in connection.execute(sql.SQL(" union all ").join(each))]


def _rows(connection: psycopg.Connection, tables: list[str]) -> dict[str, bytes]:
    """All rows of these tables, as COPY writes them."""
    statement = "copy (select * from {} as t order by t::text) to stdout"
    found = {}
    for name in tables:
        with connection.cursor().copy(sql.SQL(statement).format(sql.Identifier(name))) as rows:
            found[name] = b"".join(rows)
    return found
