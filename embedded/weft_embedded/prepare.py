"""``python -m weft_embedded.prepare database|bucket``: what API and worker need to find in the servers. Idempotent.

A process of its own, so that the supervisor neither waits for it nor carries its libraries. It reads the services'
settings; its last line of stderr is for the user.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable

from alembic.util import CommandError
from sqlalchemy.exc import DBAPIError, OperationalError

from weft_core.objects import StoreError
from weft_core.secrets import SecretsUnreadable
from weft_core.settings import Settings, load_settings
from weft_core.setup import ensure_bucket
from weft_core.store import migrate
from weft_core.store.database import Database
from weft_embedded import first_start, profile
from weft_embedded.home import Home, HomeError
from weft_embedded.servers.seaweedfs import read_identity
from weft_embedded.stack import DATASTORE

_PATIENCE = 30.0  # for servers that somebody else starts at the same time


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m weft_embedded.prepare", description=__doc__)
    parser.add_argument("what", choices=["database", "bucket"])
    parser.add_argument("--datastore", action="store_true", help="S3 is our own: make the datastore `default` for it")
    parser.add_argument("--ours", action="store_true", help="the server is our own: ask it until it answers")
    parser.add_argument("--no-profile", action="store_true", help="leave the CLI's profile file alone")
    options = parser.parse_args(arguments)
    # The supervisor starts a server of our own again when it falls, and says what is being waited for.
    patience = math.inf if options.ours else _PATIENCE
    try:
        settings = load_settings()
        if options.what == "bucket":
            _patiently(lambda: ensure_bucket(settings.s3), patience)
        else:
            _patiently(lambda: _database(settings, options.datastore, not options.no_profile), patience)
    except DBAPIError as error:
        print(f"Postgres: {' '.join(str(error.orig).split())}", file=sys.stderr)
    except CommandError as error:
        print(f"the database is of another version of Weft: {error}", file=sys.stderr)
    except (HomeError, SecretsUnreadable, StoreError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
    else:
        return 0
    return 1


def _patiently(do: Callable[[], None], patience: float) -> None:
    """Do it; a server that doesn't answer yet is asked again for so many seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return do()
        except (OperationalError, StoreError) as error:
            if time.monotonic() > deadline or not _is_away(error):
                raise
            time.sleep(0.3)


def _is_away(error: OperationalError | StoreError) -> bool:
    """Whether the server could not be reached, or is starting or ending: no other trouble passes by itself."""
    if isinstance(error, StoreError):
        return error.kind == "unreachable"
    state = getattr(error.orig, "sqlstate", None)
    return state is None or state.startswith(("08", "57P"))


def _database(settings: Settings, has_datastore: bool, has_profile: bool) -> None:
    """Migrations, accounts, the CLI's profile; prints a hint when the profile isn't the user's default."""
    home = Home(settings.home)
    store = None
    if has_datastore:
        identity = read_identity(home.s3, DATASTORE)
        if identity is None:
            raise HomeError(f"{home.s3}/identities.json has no identity {DATASTORE!r}")
        endpoint = settings.s3.public_endpoint or settings.s3.endpoint
        store = first_start.EmbeddedStore(endpoint, identity, home.load_endpoint())
    database = Database(settings.database_url.get_secret_value(), pool_size=1)
    try:
        migrate.upgrade(database.engine)
        token = first_start.ensure_accounts(database, settings, profile.own_token(home), store)
        if store is not None:
            home.save_endpoint(store.endpoint)
    finally:
        database.close()
    profile.write_own(home, settings.api.public_url, token)
    hint = profile.write_users(home, settings.api.public_url, token) if has_profile else None
    if hint:
        print(hint)


if __name__ == "__main__":
    sys.exit(main())
