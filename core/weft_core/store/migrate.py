"""Bring the database to this version's schema.

    python -m weft_core.store.migrate [upgrade|check|downgrade REVISION]

Safe to run from several processes at once: one migrates, the others wait and find nothing to do.
"""

from __future__ import annotations

import argparse
import sys

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from pydantic import ValidationError
from sqlalchemy import text
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
    with engine.begin() as connection:
        _take_turns(connection)
        command.upgrade(_config(connection), revision)
        if revision == "head":
            connection.execute(
                text("INSERT INTO installation (singleton, id) VALUES (true, :id) ON CONFLICT DO NOTHING"),
                {"id": new_id("inst")},
            )
            return row_security.ensure(connection).problem
    return None


def downgrade(engine: Engine, revision: str) -> None:
    """Undo migrations down to ``revision`` (``base`` undoes all, and with it all data)."""
    with engine.begin() as connection:
        _take_turns(connection)
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


def _take_turns(connection: Connection) -> None:
    # Migrations must not wait for ever behind a long query, nor block everyone queued behind them.
    connection.execute(text("SET LOCAL lock_timeout = '30s'"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


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
