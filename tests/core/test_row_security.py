"""Row-level security on a real Postgres: in a confined transaction, a statement without a condition finds nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, Select, delete, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from structlog.testing import capture_logs
from tests.servers import Servers

from weft_core.store import jobs, migrate, row_security
from weft_core.store.database import Database
from weft_core.store.models import (
    AuditExport,
    Base,
    DeviceLogin,
    EngineStatus,
    Event,
    Identity,
    Installation,
    Job,
    JobLabel,
    JobMetric,
    LogCursor,
    MlflowRun,
    NodeBlame,
    Project,
    Queue,
    QueueChange,
    Secret,
    SigningKey,
    User,
)
from weft_core.store.row_security import across_projects
from weft_core.store.scope import Scope

OURS, THEIRS = "prj-ours", "prj-theirs"
_TABLES = Base.metadata.sorted_tables
_numbers = itertools.count(1)


@contextmanager
def confining(url: str) -> Iterator[Database]:
    """With one connection, so that each transaction follows the last one on it."""
    database = Database(url, pool_size=1, confines=True)
    yield database
    database.close()


@pytest.fixture
def confined(database_url: str, database: Database) -> Iterator[Database]:
    """A database of two projects, each with a job and a secret."""
    with database.transaction() as session:
        fill(session)
    with confining(database_url) as opened:
        yield opened


def fill(session: Session) -> None:
    for project in (OURS, THEIRS):
        session.add_all([Project(id=project, name=project), User(id=f"user-of-{project}", name=f"user-of-{project}")])
        session.flush()
        jobs.submit(Scope(session, project), new_job(project), [])
        session.add(Secret(id=f"secret-of-{project}", project_id=project, name="key", ciphertext=b""))
    session.add(EngineStatus(name="local", type="local"))


def fill_at(url: str) -> None:
    database = Database(url)
    with database.transaction() as session:
        fill(session)
    database.close()


def new_job(project: str) -> Job:
    user = f"user-of-{project}"
    return Job(user_id=user, name="j", manifest={}, engine="local", priority=50, learners=1, retries=0)


def projects_of(session: Session, query: Select[Any] | None = None) -> list[str]:
    """The projects of the jobs, or of the rows that the query finds."""
    return sorted(session.scalars(select(Job.project_id) if query is None else query))


def refused(database: Database, *statements: Any) -> list[str]:
    """The errors of these statements, each in a transaction confined to our project."""
    errors = []
    for statement in statements:
        with database.transaction() as session:
            Scope(session, OURS)
            with pytest.raises(DBAPIError) as caught:
                session.execute(statement)
            session.rollback()
        errors.append(str(caught.value.orig))
    return errors


# --- what is found -----------------------------------------------------------------------------------------------


def test_a_scope_whose_condition_is_forgotten_finds_nothing_of_others(
    database: Database, confined: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scope, "select", lambda _, model, *conditions: select(model).where(*conditions))
    with database.transaction() as session:
        theirs = session.scalars(select(Job.id).where(Job.project_id == THEIRS)).one()
        assert Scope(session, OURS).find(Job, Job.id == theirs) is not None  # nothing else keeps them apart
    with confined.transaction() as session:
        scope = Scope(session, OURS)
        assert scope.find(Job, Job.id == theirs) is None
        assert scope.find(Job, Job.id == theirs, lock=True) is None
        assert [job.project_id for job in scope.all(scope.select(Job))] == [OURS]


def test_statements_of_any_other_kind_find_nothing_of_others_either(database: Database, confined: Database) -> None:
    with database.transaction() as session:
        theirs = session.scalars(select(Job.id).where(Job.project_id == THEIRS)).one()
    with confined.transaction() as session:
        Scope(session, OURS)
        assert session.get(Job, theirs) is None
        assert session.get(LogCursor, theirs) is None
        assert session.scalar(select(func.count()).select_from(Event).where(Event.job_id == theirs)) == 0
        assert projects_of(session) == projects_of(session, select(Project.id)) == [OURS]
        assert session.scalar(text("select count(*) from jobs join secrets using (project_id)")) == 1
    with confined.transaction() as session:
        Scope(session, OURS)
        assert session.execute(update(Job).values(name="renamed").returning(Job.project_id)).all() == [(OURS,)]
        assert session.execute(delete(Secret).returning(Secret.project_id)).all() == [(OURS,)]
    with database.transaction() as session:
        assert session.scalars(select(Job.name).where(Job.project_id == THEIRS)).all() == ["j"]
        assert projects_of(session, select(Secret.project_id)) == [THEIRS]


def test_a_row_of_another_project_can_neither_be_made_nor_given_away(confined: Database) -> None:
    new = insert(Secret).values(id="new", project_id=THEIRS, name="other", ciphertext=b"")
    given = update(Secret).values(project_id=THEIRS, name="given")
    for error in refused(confined, new, given):
        assert "new row violates row-level security policy" in error


def test_every_table_has_a_policy_or_holds_nothing_of_a_project(confined: Database) -> None:
    """A new table with a project_id needs its policy in its migration; one without must be named here."""
    shared = {
        model.__tablename__
        for model in (
            AuditExport,
            DeviceLogin,
            EngineStatus,
            Identity,
            Installation,
            NodeBlame,
            Queue,
            QueueChange,
            SigningKey,
            User,
        )
    }
    assert {table.name for table in _TABLES if "project_id" not in table.columns} == shared | {"projects"}
    query = text(
        "select relname, polcmd, pg_get_expr(polqual, polrelid), polwithcheck, row_security_active(polrelid)"
        " from pg_policy join pg_class on pg_class.oid = polrelid"
    )
    with confined.transaction() as session:
        Scope(session, OURS)
        found = {table: tuple(rest) for table, *rest in session.execute(query)}
    wanted = {
        table.name: ("*", f"({column} = current_setting('weft.project'::text, true))", None, True)
        for table in _TABLES
        if table.name not in shared
        for column in ["id" if table.name == "projects" else "project_id"]
    }
    assert found == wanted


def test_no_table_of_the_database_is_unknown_to_the_models(database: Database) -> None:
    with database.engine.connect() as connection:
        found = connection.scalars(text("select tablename from pg_tables where schemaname = current_schema()")).all()
    assert set(found) == {table.name for table in _TABLES} | {"alembic_version"}


def test_what_belongs_to_no_project_is_hidden_as_far_as_requests_do_not_need_it(confined: Database) -> None:
    with confined.transaction() as session:
        Scope(session, OURS)
        assert len(session.execute(select(User.id, User.name)).all()) == 2  # who ran a job
        assert session.get(EngineStatus, "local") is not None
    for error in refused(confined, select(User.password_hash), select(Installation.id), select(AuditExport.target)):
        assert "permission denied" in error


def test_without_a_project_the_role_finds_nothing(confined: Database) -> None:
    with confined.transaction() as session:
        Scope(session, OURS)
        for nothing in ("", "prj-unknown"):
            session.execute(select(func.set_config("weft.project", nothing, True)))
            assert projects_of(session) == []


# --- which transactions ------------------------------------------------------------------------------------------


def test_a_confinement_ends_with_its_transaction(confined: Database) -> None:
    with confined.transaction() as session:
        assert projects_of(session) == [OURS, THEIRS]  # no scope yet, as when a token is looked up
        pid = session.scalar(select(func.pg_backend_pid()))
        Scope(session, OURS)
        assert projects_of(session) == [OURS]
    with confined.transaction() as session:
        Scope(session, OURS)
        session.rollback()
    with confined.transaction() as session:
        assert session.scalar(select(func.pg_backend_pid())) == pid
        assert session.scalar(select(func.current_setting("role"))) == "none"
        assert projects_of(session) == [OURS, THEIRS]
        assert [row.project_id for row in Scope(session, THEIRS).all(select(Job))] == [THEIRS]


def test_workers_see_all_projects(database: Database, confined: Database) -> None:
    with database.transaction() as session:
        for project in (OURS, THEIRS):
            assert Scope(session, project).find(Secret) is not None
            assert projects_of(session) == [OURS, THEIRS]


def test_a_transaction_is_confined_to_one_project_and_not_by_halves(confined: Database) -> None:
    with confined.transaction() as session:
        Scope(session, OURS)
        Scope(session, OURS)
        with pytest.raises(RuntimeError, match="one project"):
            Scope(session, THEIRS)
        assert projects_of(session) == [OURS]
    with confined.transaction() as session, session.begin_nested(), pytest.raises(RuntimeError, match="savepoint"):
        Scope(session, OURS)
    with confined.transaction() as session:
        Scope(session, OURS)
        session.begin_nested().rollback()
        assert projects_of(session) == [OURS]


def test_a_few_statements_may_look_beyond_the_project(confined: Database) -> None:
    with confined.transaction() as session:
        scope = Scope(session, OURS)
        job = jobs.submit(scope, new_job(OURS), [])
        with across_projects(session):
            assert projects_of(session) == [OURS, OURS, THEIRS]
            with across_projects(session):
                assert projects_of(session) == [OURS, OURS, THEIRS]
            assert projects_of(session) == [OURS, OURS, THEIRS]
        assert projects_of(session) == [OURS, OURS]
        with pytest.raises(ZeroDivisionError), across_projects(session):
            raise ZeroDivisionError
        assert projects_of(session) == [OURS, OURS]
        assert scope.find(Job, Job.id == job.id) is job
    with confined.transaction() as session:
        Scope(session, OURS)
        with pytest.raises(DBAPIError, match="division by zero"), across_projects(session):
            session.execute(text("select 1 / 0"))
        session.rollback()


# --- whether it is in force --------------------------------------------------------------------------------------


@contextmanager
def owned(servers: Servers, rights: str) -> Iterator[str]:
    """The URL of an empty database, as the user who owns it and has these rights besides."""
    user = f"owner_{next(_numbers)}"
    with servers.postgres.connect() as admin:
        admin.execute(f"create role {user} login {rights}")
        admin.execute(f"create database {user} owner {user}")
    yield servers.postgres.url_of(user).replace("//weft@", f"//{user}@")
    with servers.postgres.connect() as admin:
        admin.execute(f"drop database {user} with (force)")


def problem_of(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return row_security.look_up(connection).problem


def test_an_owner_who_may_create_roles_needs_no_administrator(servers: Servers) -> None:
    with owned(servers, "createrole") as url, confining(url) as database:
        assert migrate.upgrade(database.engine) is None
        fill_at(url)
        with database.transaction() as session:
            assert projects_of(session) == [OURS, THEIRS]
            Scope(session, OURS)
            assert projects_of(session) == [OURS]


def test_where_roles_are_the_administrators_it_is_not_in_force_until_they_have_made_it(servers: Servers) -> None:
    with owned(servers, "nocreaterole") as url:
        with confining(url) as database:
            problem = migrate.upgrade(database.engine)
            assert problem is not None
            fill_at(url)
            with capture_logs() as logs:
                for _ in range(2):
                    with database.transaction() as session:  # the conditions of the queries still hold
                        scope = Scope(session, OURS)
                        assert [job.project_id for job in scope.all(scope.select(Job))] == [OURS]
                        with across_projects(session):
                            assert projects_of(session) == [OURS, THEIRS]
            assert [line["reason"] for line in logs] == [problem]
        statements = re.search("`(CREATE ROLE [^`]*)`", problem)
        assert statements is not None
        with servers.postgres.connect() as admin:
            for statement in filter(str.strip, statements[1].split(";")):
                admin.execute(statement)
        with confining(url) as database:
            assert "lacks privileges on these tables" in (problem_of(database.engine) or "")
            assert migrate.upgrade(database.engine) is None
            with database.transaction() as session:
                Scope(session, THEIRS)
                assert projects_of(session) == [THEIRS]


def test_a_user_who_does_not_own_the_tables_is_named(servers: Servers) -> None:
    with servers.postgres.connect() as admin:
        admin.execute("create role guest login")
    with owned(servers, "createrole") as url:
        with confining(url) as database:
            migrate.upgrade(database.engine)
            with database.engine.begin() as connection:
                role = row_security.look_up(connection).role
                connection.exec_driver_sql("grant select on all tables in schema public to guest")
                connection.exec_driver_sql(f"grant {role} to guest")
        with confining(re.sub("//owner_[0-9]+@", "//guest@", url)) as database:
            assert "guest does not own these tables" in (problem_of(database.engine) or "")


def test_the_next_migration_mends_a_database_that_was_restored_in_another_cluster(
    database: Database, confined: Database
) -> None:
    """Roles are no part of a dump."""
    with database.engine.begin() as connection:
        connection.execute(text("update installation set id = 'inst-elsewhere'"))
    assert "weft_scoped_elsewhere is missing" in (problem_of(database.engine) or "")
    assert migrate.upgrade(database.engine) is None
    with confined.transaction() as session:
        Scope(session, OURS)
        assert projects_of(session) == [OURS]
        assert session.scalar(select(func.current_setting("role"))) == "weft_scoped_elsewhere"


def test_each_hole_is_seen(database: Database) -> None:
    def after(*statements: str) -> str:
        with database.engine.connect() as connection:
            role = row_security.look_up(connection).role
            for statement in statements:
                connection.exec_driver_sql(statement.replace("ROLE", role))
            return row_security.look_up(connection).problem or ""  # and nothing of it is committed

    assert after() == ""
    assert after("alter table jobs disable row level security").endswith("these tables: jobs")
    assert after("drop policy weft_project on events").endswith("these tables: events")
    assert after("alter table learners owner to ROLE").endswith("these tables: learners")
    assert "lacks privileges on these tables: attempts, users;" in after(
        "revoke insert on attempts from ROLE", "revoke select (name) on users from ROLE"
    )
    assert "neither SUPERUSER nor BYPASSRLS" in after("alter role ROLE bypassrls")


def test_down_and_up_while_the_api_runs(database: Database, confined: Database) -> None:
    with confined.transaction() as session:
        Scope(session, OURS)
        assert projects_of(session) == [OURS]
    migrate.downgrade(database.engine, "0026-1")
    with confined.transaction() as session:  # as before: the conditions in the queries are the only protection
        scope = Scope(session, OURS)
        assert projects_of(session) == [OURS, THEIRS]
        # Of columns that every version has: this version's rows have more.
        assert session.scalars(scope.select(Job).with_only_columns(Job.project_id)).all() == [OURS]
    assert problem_of(database.engine) is not None
    assert migrate.upgrade(database.engine) is None
    with confined.transaction() as session:
        Scope(session, OURS)
        assert projects_of(session) == [OURS]


@pytest.mark.parametrize("view", [view.name for view in row_security.VIEWS.values()])
def test_a_view_for_lists_shows_the_transactions_project_only(confined: Database, view: str) -> None:
    with confined.transaction() as session:
        for job in session.scalars(select(Job)):
            session.add(JobMetric(job_id=job.id, name="loss", project_id=job.project_id, rank=0))
            session.add(JobLabel(job_id=job.id, key="a", value="b", project_id=job.project_id, created_at=func.now()))
            own = {"id": job.id, "job_id": job.id, "project_id": job.project_id}
            session.add(MlflowRun(**own, experiment_id="1", user="ann", status="FINISHED", start_time=0))
    rows = text(f"select project_id from {view}")
    for project in (OURS, THEIRS):
        with confined.transaction() as session:
            Scope(session, project)
            assert session.scalars(rows).all() == [project]
    with confined.transaction() as session:
        assert session.scalars(rows).all() == []
