"""``python -m weft_embedded.prepare.database``: the schema, the accounts, and the CLI's profile."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # a short life: its garbage goes with it

# isort: split

import argparse
import sys

from alembic.util import CommandError
from sqlalchemy.exc import DBAPIError, OperationalError

from weft_core.secrets import SecretsUnreadable
from weft_core.settings import Settings, load_settings
from weft_core.store import migrate
from weft_core.store.database import Database
from weft_core.store.row_security import NOT_IN_FORCE
from weft_embedded import first_start, profile
from weft_embedded.home import Home, HomeError
from weft_embedded.prepare import patiently


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m weft_embedded.prepare.database", description=__doc__)
    parser.add_argument("--no-profile", action="store_true", help="leave the CLI's profile file alone")
    parser.add_argument("--ours", action="store_true", help="the server is our own: ask it until it answers")
    options = parser.parse_args(arguments)
    try:
        settings = load_settings()
        patiently(lambda: _prepare(settings, not options.no_profile), _is_away, options.ours)
    except DBAPIError as error:
        print(f"Postgres: {' '.join(str(error.orig).split())}", file=sys.stderr)
    except CommandError as error:
        print(f"the database is of another version of Weft: {error}", file=sys.stderr)
    except (HomeError, SecretsUnreadable, ValueError, OSError) as error:
        print(error, file=sys.stderr)
    else:
        return 0
    return 1


def _is_away(error: Exception) -> bool:
    """Whether the server could not be reached, or is starting or ending: no other trouble passes by itself."""
    if not isinstance(error, OperationalError):
        return False
    state = getattr(error.orig, "sqlstate", None)
    return state is None or state.startswith(("08", "57P"))


def _prepare(settings: Settings, has_profile: bool) -> None:
    """Migrations, accounts, the CLI's profile; prints a hint when the profile isn't the user's default."""
    home = Home(settings.home)
    database = Database(settings.database_url.get_secret_value(), pool_size=1)
    try:
        problem = migrate.upgrade(database.engine)
        token = first_start.ensure_accounts(database, settings, profile.own_token(home))
    finally:
        database.close()
    profile.write_own(home, settings.api.public_url, token)
    if problem:
        print(f"{NOT_IN_FORCE}: {problem}")
    hint = profile.write_users(home, settings.api.public_url, token) if has_profile else None
    if hint:
        print(hint)


if __name__ == "__main__":
    sys.exit(main())
