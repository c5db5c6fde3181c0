"""The pool replaces connections that Postgres has closed, and sends no request to check the others."""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event, text

from weft_core.store.database import Database

_PID = text("select pg_backend_pid()")


@pytest.fixture
def pooled(database_url: str) -> Iterator[Database]:
    opened = Database(database_url, pool_size=1)
    yield opened
    opened.close()


def _end(database: Database, pid: int) -> None:
    """End an idle connection, as a restart of Postgres does, and wait until the client could know."""
    pool: Any = database.engine.pool
    idle = pool._pool.queue[0].dbapi_connection
    other = Database(database.engine.url.render_as_string(hide_password=False), pool_size=1)
    with other.autocommit() as connection:
        connection.execute(text("select pg_terminate_backend(:pid)"), {"pid": pid})
    other.close()
    assert select.select([idle.fileno()], [], [], 60)[0]


def test_a_connection_that_postgres_has_closed_is_replaced(pooled: Database) -> None:
    with pooled.transaction() as session:
        first = session.scalar(_PID)
    _end(pooled, first)
    with pooled.transaction() as session:
        second = session.scalar(_PID)
    assert second != first
    with pooled.autocommit() as connection:
        assert connection.scalar(_PID) == second, "the same one again"


def test_a_connection_that_is_there_is_not_asked(pooled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with pooled.transaction() as session:
        session.scalar(_PID)
    asked: list[Any] = []
    monkeypatch.setattr(pooled.engine.dialect, "do_ping", asked.append)
    statements: list[str] = []
    event.listen(pooled.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
    with pooled.transaction() as session:
        session.scalar(_PID)
    assert len(statements) == 1
    assert not asked


def test_a_statement_of_autocommit_is_committed_by_itself(pooled: Database) -> None:
    with pooled.autocommit() as connection:
        first, second = (connection.scalar(text("select txid_current()")) for _ in range(2))
    assert first != second
