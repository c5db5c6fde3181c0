"""Migrations, up and down, against a real Postgres."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from tests.servers import Servers

from weft_core import bundled
from weft_core.log_archive import pack_times, unpack_times
from weft_core.store import jobs, migrate
from weft_core.store.database import Database
from weft_core.store.models import (
    Base,
    EngineStatus,
    Job,
    JobLabel,
    JobText,
    LogChunk,
    LogCursor,
    LogSource,
    Project,
    User,
)
from weft_core.store.scope import Scope


@pytest.fixture
def empty(servers: Servers) -> Iterator[Engine]:
    """A database without any table."""
    with servers.without_schema() as url:
        database = Database(url)
        yield database.engine
        database.close()


@pytest.fixture
def newest(database: Database) -> Engine:
    """A database to which all migrations have been applied."""
    return database.engine


def test_up_gives_exactly_the_models_schema(newest: Engine) -> None:
    with newest.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []
    migrate.check(newest)


def test_down_to_base_leaves_nothing_and_up_works_again(newest: Engine) -> None:
    migrate.downgrade(newest, "base")
    assert set(inspect(newest).get_table_names()) <= {"alembic_version"}
    migrate.upgrade(newest)
    migrate.check(newest)


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


def test_the_database_refuses_a_second_installation(newest: Engine) -> None:
    with newest.connect() as connection, pytest.raises(IntegrityError):
        connection.execute(text("insert into installation (singleton, id) values (false, 'inst-other')"))


def test_an_engine_of_a_new_type_needs_no_migration(newest: Engine) -> None:
    with Session(newest) as session, session.begin():
        session.add_all([EngineStatus(name="batch", type="slurm"), EngineStatus(name="here", type="local")])
    migrate.downgrade(newest, "0014")
    with Session(newest) as session:
        assert session.scalars(text("select name from engines")).all() == ["here"]
    migrate.upgrade(newest)


def test_lines_of_an_older_weft_are_kept_and_known(newest: Engine) -> None:
    times = [1_700_000_000_000, 1_699_999_999_000, 1_700_000_000_500]
    with Session(newest) as session, session.begin():
        session.add(Project(id="prj-a", name="a"))
        session.add(User(id="usr-a", name="a"))
        session.flush()
        job = Job(user_id="usr-a", name="j", manifest={}, engine="local", priority=50, learners=1, retries=0)
        jobs.submit(Scope(session, "prj-a"), job, [])
        for sequence in range(2):
            session.add(
                LogChunk(job_id=job.id, first_line=3 * sequence, project_id="prj-a", attempt=1, rank=0, lines=3,
                         body=b"a\nb\nc\n", times=b"", latest=0)
            )  # fmt: skip
        session.add(LogSource(job_id=job.id, attempt=1, rank=0, project_id="prj-a", next_sequence=7))
        session.get_one(LogCursor, job.id).next_line = 6
    migrate.downgrade(newest, "0011")
    with newest.begin() as connection:
        query = text("select first_line, sequence, jsonb_array_length(times) from log_chunks order by first_line")
        assert connection.execute(query).all() == [(0, 5, 3), (3, 6, 3)]
        connection.execute(text("update log_chunks set times = :times"), {"times": json.dumps(times)})
    migrate.upgrade(newest)
    with Session(newest) as session:
        assert [unpack_times(chunk.times) for chunk in session.scalars(select(LogChunk))] == [times, times]
        assert session.scalars(select(LogChunk.latest)).all() == [max(times)] * 2
        assert session.scalars(select(LogCursor.latest)).one() == max(times)
        assert session.scalars(select(LogSource.next_sequence)).one() == 7


_VERSION = "alembic_version"
_STOPPED = "0007"
"""Before the first release, this one wanted the older version to be stopped."""
_FIXED: dict[str, Any] = {
    "datastores.space": None,  # it has either this or a secret
    "installation.singleton": True,
    "jobs.kind": "train",
    "log_chunks.body": b"a\nb\n",
    "log_chunks.lines": 2,
    "log_chunks.times": pack_times([1_700_000_000_000, 1_700_000_000_500]),
}


def _value(column: Column[Any], checks: dict[str, str]) -> Any:
    """A value that fits a column of the newest schema."""
    place = f"{column.table.name}.{column.name}"
    if place in _FIXED:
        return _FIXED[place]
    if foreign := next(iter(column.foreign_keys), None):
        return _value(foreign.column, checks)
    if place in checks:
        return checks[place]
    kind = column.type
    if isinstance(kind, JSONB):
        return [] if "[]" in str(getattr(column.server_default, "arg", "")) else {}
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    plain: dict[type[Any], Any] = {
        Boolean: True, Integer: 1, Float: 1.5, DateTime: moment, LargeBinary: b"x", ARRAY: [1],
    }  # fmt: skip
    return next((value for base, value in plain.items() if isinstance(kind, base)), f"{column.name}-1")


def _fill(connection: Connection) -> None:
    """A row in every table, without a gap in it."""
    tables = Base.metadata.sorted_tables
    allowed = re.compile(r"(\w+)\)?(?:::text)? (?:in|IN) \('(\w+)'")
    checks = {
        f"{table.name}.{found[1]}": found[2]
        for table in tables
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint) and (found := allowed.search(str(constraint.sqltext)))
    }
    for table in tables:
        row = {column.name: _value(column, checks) for column in table.columns}
        connection.execute(insert(table).values(row).on_conflict_do_nothing())


def _rows(connection: Connection) -> dict[str, int]:
    """How many rows each table has."""
    each = [f"select '{name}', count(*) from \"{name}\"" for name in inspect(connection).get_table_names()]
    found = connection.execute(text(" union all ".join(each))).all() if each else ()
    return {name: number for name, number in found if name != _VERSION}


def _columns(connection: Connection) -> dict[str, list[str]]:
    columns = inspect(connection).get_multi_columns()
    return {name: [column["name"] for column in found] for (_, name), found in columns.items() if name != _VERSION}


def test_each_migration_goes_up_and_down_over_rows(newest: Engine) -> None:
    """As in an upgrade: over the rows of an older Weft, and while it writes. None of them is lost."""
    with newest.begin() as connection:
        _fill(connection)
        assert set(_rows(connection).values()) == {1}
    script = ScriptDirectory(str(bundled.path("migrations")))
    for migration in script.walk_revisions():
        before = str(migration.down_revision or "base")
        migrate.downgrade(newest, before)
        with newest.connect() as connection:
            older, columns = _rows(connection), _columns(connection)
        assert older.get("jobs", 1) == 1
        migrate.upgrade(newest, migration.revision)
        with newest.begin() as connection:
            newer = _columns(connection)
            for table, names in columns.items() if migration.revision != _STOPPED else ():
                # The older version writes only these: without the newer ones, the insert must reach its conflict.
                known = ", ".join(f'"{name}"' for name in names if name in newer[table])
                rows = f'insert into "{table}" ({known}) select {known} from "{table}"'
                connection.execute(text(f"{rows} on conflict do nothing"))
            kept = _rows(connection)
        lost = {table for table, number in older.items() if kept[table] != number}
        assert not lost, f"{migration.revision} loses rows of {lost}"
    migrate.upgrade(newest)
    migrate.check(newest)


def test_waiting_jobs_have_steps_of_their_own_in_an_older_weft(newest: Engine) -> None:
    with Session(newest) as session, session.begin():
        session.add(Project(id="prj-a", name="a"))
        session.add(User(id="usr-a", name="a"))
        session.flush()
        for name, step in (("planned", None), ("new", func.now())):
            job = Job(
                id=name, user_id="usr-a", name="j", manifest={}, engine="local", priority=50, learners=1, retries=0
            )
            jobs.submit(Scope(session, "prj-a"), job, [])
            session.flush()
            job.next_step_at = step
    migrate.downgrade(newest, "0026")
    with newest.begin() as connection:
        assert connection.scalar(text("select count(*) from jobs where next_step_at <= now()")) == 2
    migrate.upgrade(newest)
    with newest.begin() as connection:
        assert connection.scalar(text("select count(*) from jobs where next_step_at <= now()")) == 2, (
            "as a pass finds them"
        )


def test_older_jobs_are_listed(empty: Engine) -> None:
    migrate.upgrade(empty, "0026")
    with empty.begin() as connection:
        for statement in (
            "insert into projects (id, name) values ('prj-a', 'a')",
            "insert into users (id, name) values ('usr-a', 'a')",
            """insert into jobs (id, project_id, user_id, name, labels, manifest, engine, priority, learners, retries)
            values ('job-old', 'prj-a', 'usr-a', 'Zebra', '{"team": "vision"}', '{"description": "Big"}', 'x', 1, 1,
            0)""",
        ):
            connection.execute(text(statement))
    for _ in range(2):
        migrate.upgrade(empty)
        with Session(empty) as session, session.begin():
            new = Job(user_id="usr-a", name="New", labels={"a": "b"}, manifest={}, engine="x", priority=1, learners=1,
                      retries=0)  # fmt: skip
            made = jobs.submit(Scope(session, "prj-a"), new, []).id
            texts = dict(session.execute(select(JobText.job_id, JobText.body)).all())
            labels = {(row.job_id, row.key, row.value) for row in session.scalars(select(JobLabel))}
            assert texts == {"job-old": "zebra\njob-old\nbig", made: f"new\n{made}\n"}
            assert labels == {("job-old", "team", "vision"), (made, "a", "b")}
            session.delete(new)
            session.flush()
            assert session.scalars(select(JobText.job_id)).all() == ["job-old"]
        migrate.downgrade(empty, "0026")


def test_an_index_whose_building_was_stopped_is_built_again(empty: Engine) -> None:
    migrate.upgrade(empty, "0028")
    with empty.begin() as connection:
        connection.execute(text("update pg_index set indisvalid = false where indexrelid = 'ix_jobs_name'::regclass"))
        connection.execute(text("update alembic_version set version_num = '0027'"))
    migrate.upgrade(empty)
    with empty.connect() as connection:
        assert connection.scalar(text("select indisvalid from pg_index where indexrelid = 'ix_jobs_name'::regclass"))
