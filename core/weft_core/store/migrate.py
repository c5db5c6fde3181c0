"""Bring the database to this version's schema.

    python -m weft_core.store.migrate [upgrade|check|downgrade REVISION]

Safe to run from several processes at once: one migrates, the others wait and find nothing to do.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from pydantic import ValidationError
from sqlalchemy import event, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import OperationalError

from weft_core import bundled
from weft_core.ids import new_id
from weft_core.settings import load_settings
from weft_core.store import row_security
from weft_core.store.database import Database

# Any constant does, as long as all of Weft uses the same.
_LOCK = 0x57454654  # 'WEFT'


class SchemaMismatch(Exception):
    """The database's schema is not the one of this version."""


def _config(connection: Connection) -> Config:
    config = Config()
    # Alembic takes a percent sign for the begin of a name to put in.
    config.set_main_option("script_location", str(bundled.path("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade(engine: Engine, revision: str = "head") -> str | None:
    """Apply all migrations up to ``revision``. With all of them, also give the installation its identity on the first
    run, and make the role of row-level security.

    Returns:
        Why row-level security is not in force; None if it is, or if ``revision`` is not the newest.
    """
    with _turn(engine), _patient(engine) as connection:
        command.upgrade(_config(connection), revision)
        connection.commit()
        if revision == "head":
            with connection.begin():
                connection.execute(
                    text("INSERT INTO installation (singleton, id) VALUES (true, :id) ON CONFLICT DO NOTHING"),
                    {"id": new_id("inst")},
                )
                return row_security.ensure(connection).problem
    return None


def downgrade(engine: Engine, revision: str) -> None:
    """Undo migrations down to ``revision`` (``base`` undoes all, and with it all data)."""
    with _turn(engine), _patient(engine) as connection:
        command.downgrade(_config(connection), revision)


def check(engine: Engine) -> None:
    """Raise SchemaMismatch unless the schema is this version's."""
    with engine.connect() as connection:
        script = ScriptDirectory.from_config(_config(connection))
        have, want = MigrationContext.configure(connection).get_current_revision(), script.get_current_head()
    if have != want:
        raise SchemaMismatch(
            f"the database's schema is at {have or 'nothing'}, this version of Weft needs {want}: "
            "run `python -m weft_core.store.migrate upgrade`"
        )


def knows(revision: str) -> bool:
    """Whether this version has the migration, so that it can upgrade a database from there."""
    script = ScriptDirectory(str(bundled.path("migrations")))
    return any(each.revision == revision for each in script.walk_revisions())


@contextmanager
def _turn(engine: Engine) -> Iterator[None]:
    """One process migrates at a time. A transaction of another connection holds the lock: each migration has its own
    transaction, and some work outside of any."""
    with engine.connect() as connection:
        # A transaction for each try: building an index waits for every transaction that is in the middle of a
        # statement. A transaction that kept waiting for the lock would block the builder, which holds the lock.
        while not connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({_LOCK})").scalar():
            connection.rollback()
            time.sleep(0.1)
        yield


@contextmanager
def _patient(engine: Engine) -> Iterator[Connection]:
    """A connection whose transactions neither wait for ever behind a long query, nor block everyone behind them."""
    with engine.connect() as connection:
        event.listen(connection, "begin", lambda begun: begun.exec_driver_sql("SET LOCAL lock_timeout = '30s'"))
        yield connection


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m weft_core.store.migrate", description=__doc__)
    parser.add_argument("action", nargs="?", choices=["upgrade", "check", "downgrade"], default="upgrade")
    parser.add_argument("revision", nargs="?", help="of downgrade: a revision, or 'base'")
    options = parser.parse_args(arguments)
    if options.action == "downgrade" and not options.revision:
        parser.error("downgrade needs a revision")
    try:
        database = Database(load_settings().database_url.get_secret_value())
    except ValidationError as error:
        print(f"settings: {error}", file=sys.stderr)
        return 2
    try:
        if options.action == "upgrade":
            problem = upgrade(database.engine, options.revision or "head")
            if problem:
                print(f"{row_security.NOT_IN_FORCE}: {problem}", file=sys.stderr)
        elif options.action == "check":
            check(database.engine)
        else:
            downgrade(database.engine, options.revision)
    except SchemaMismatch as error:
        print(error, file=sys.stderr)
        return 1
    except CommandError as error:
        print(f"the database is of another version of Weft: {error}", file=sys.stderr)
        return 1
    except OperationalError as error:
        print(f"can't reach Postgres: {error.orig}", file=sys.stderr)
        return 1
    finally:
        database.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
