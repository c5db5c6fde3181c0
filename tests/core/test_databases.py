"""The databases of the tests: what a test leaves behind is not there for the next."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from tests.servers import Servers

from weft_core.store.database import Database
from weft_core.store.models import Base
from weft_workers.context import read_installation

_ROWS = """
    insert into projects (id, name) values ('prj-a', 'a');
    insert into users (id, name) values ('usr-a', 'a');
    insert into jobs (id, project_id, user_id, name, labels, manifest, engine, priority, learners, retries)
    values ('job-a', 'prj-a', 'usr-a', 'a', '{}', '{}', 'x', 1, 1, 0);
    update installation set id = 'inst-other'
"""


def _number(url: str) -> int:
    """The oid, which tells databases apart whatever their names are."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        row = connection.execute("select oid from pg_database where datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])


def _counts(database: Database) -> dict[str, int]:
    with database.engine.connect() as connection:
        return {
            table: connection.scalar(text(f'select count(*) from "{table}"')) or 0 for table in Base.metadata.tables
        }


def test_a_database_that_is_used_again_is_as_new_and_has_another_name(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers.databases, "_spare", [])  # what other tests have left may be full, and is not used then
    with servers.database_url() as first:
        number, left = _number(first), Database(first)
        new, installation = _counts(left), read_installation(left)
        with left.engine.begin() as connection:
            connection.execute(text(_ROWS))
        assert _counts(left) != new
    with pytest.raises(OperationalError):  # a thread that the first test has left
        _counts(left)
    with servers.database_url() as second:
        again = Database(second)
        assert _number(second) == number
        assert _counts(again) == new
        assert read_installation(again) == installation
        again.close()


@pytest.mark.parametrize(
    "change",
    [
        "alter table jobs add column more text",
        "alter table jobs disable row level security",
        "do $$ begin execute format('alter database %I set work_mem = 64', current_database()); end $$",
    ],
)
def test_a_database_whose_schema_or_settings_were_changed_is_not_used_again(servers: Servers, change: str) -> None:
    with servers.database_url() as url:
        number, database = _number(url), Database(url)
        with database.engine.begin() as connection:
            connection.execute(text(change))
        database.close()
    with servers.database_url() as url:
        assert _number(url) != number
