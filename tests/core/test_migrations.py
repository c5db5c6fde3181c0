"""Migrations, up and down, against a real Postgres."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError
from tests.servers import Servers

from weft_core.store import migrate
from weft_core.store.database import Database
from weft_core.store.models import Base


@pytest.fixture
def empty(servers: Servers) -> Iterator[Engine]:
    """A database without any table."""
    with servers.database_url() as url:
        database = Database(url)
        with database.engine.begin() as connection:
            connection.execute(text("drop schema public cascade"))
            connection.execute(text("create schema public"))
        yield database.engine
        database.close()


def test_up_gives_exactly_the_models_schema(empty: Engine) -> None:
    migrate.upgrade(empty)
    with empty.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []
    migrate.check(empty)


def test_down_to_base_leaves_nothing_and_up_works_again(empty: Engine) -> None:
    migrate.upgrade(empty)
    migrate.downgrade(empty, "base")
    assert set(inspect(empty).get_table_names()) <= {"alembic_version"}
    migrate.upgrade(empty)
    migrate.check(empty)


def test_check_names_the_command_that_helps(empty: Engine) -> None:
    with pytest.raises(migrate.SchemaMismatch, match=r"python -m weft_core\.store\.migrate upgrade"):
        migrate.check(empty)


def test_concurrent_runs_take_turns_and_agree_on_one_installation(empty: Engine) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            migrate.upgrade(empty)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with empty.connect() as connection:
        assert connection.scalar(text("select count(*) from installation")) == 1


def test_the_database_refuses_a_second_installation(empty: Engine) -> None:
    migrate.upgrade(empty)
    with empty.connect() as connection, pytest.raises(IntegrityError):
        connection.execute(text("insert into installation (singleton, id) values (false, 'inst-other')"))
