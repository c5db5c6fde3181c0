"""While a backup is being made, nothing deletes objects that the backup's copy of the database may name.

A backup copies the database first, and the objects after it. Objects are stored before rows name them, so only a
deletion in between could make the copy name something that is not there. A backup therefore holds an advisory lock of
Postgres (:func:`hold_deletions`), and every deletion of objects in the installation's own bucket asks for the same lock
first (:func:`may_delete`). The lock ends with its connection, so a backup that dies holds nobody up.

    python -m weft_core.store.backups COMMAND [ARGUMENT…]

runs a command under that lock: a script that copies a database and a bucket of your own (docs/backup.md).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from pydantic import ValidationError
from sqlalchemy import text
from sqlalchemy.orm import Session

from weft_core import postgres_url
from weft_core.settings import load_settings

_LOCK = 0x57424B50  # 'WBKP'; any constant does, as long as all of Weft uses the same


class BackupRuns(Exception):
    """Nothing may be deleted now; the message is for the user."""

    def __init__(self) -> None:
        super().__init__("a backup is being made: no file can be deleted until it has ended")


def may_delete(session: Session) -> None:
    """Keep backups from beginning until this transaction ends, so that it may delete objects. Never waits.

    Raises:
        BackupRuns: one is being made, or is about to begin.
    """
    if not session.scalar(text("select pg_try_advisory_xact_lock_shared(:key)"), {"key": _LOCK}):
        raise BackupRuns


@contextmanager
def hold_deletions(database_url: str) -> Iterator[None]:
    """Hold up deletions of objects; waits for those that are under way.

    Args:
        database_url: as libpq takes it; a direct connection, as the lock is its session's.

    Raises:
        BackupRuns: another backup is being made.
        psycopg.Error: the database does not answer.
    """
    with psycopg.connect(database_url, autocommit=True) as connection:
        # Two locks: the first one tells another backup, which ends at once, from deletions, which end soon.
        row = connection.execute("select pg_try_advisory_lock(%s)", [_LOCK + 1]).fetchone()
        if row is None or not row[0]:
            raise BackupRuns
        try:
            connection.execute("select pg_advisory_lock(%s)", [_LOCK])
            yield
        finally:
            # The server notices a closed connection only after a moment, in which a deletion would be refused.
            with suppress(psycopg.Error):
                connection.execute("select pg_advisory_unlock_all()")


def main(arguments: list[str] | None = None) -> int:
    """Run a command while deletions are held up; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m weft_core.store.backups", description="Run a command while nothing deletes stored objects."
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="the command that makes the backup, and its arguments"
    )
    command = parser.parse_args(arguments).command
    if not command:
        parser.error("a command is missing: the one that copies the database and then the bucket")
    try:
        url = load_settings().database_url.get_secret_value()
        if postgres_url.is_pooled(url):
            print(
                "database_url: this needs a direct connection to Postgres, as its lock belongs to the connection. "
                "Set WEFT_DATABASE_URL for this command to the server's own URL, without pgbouncer=true.",
                file=sys.stderr,
            )
            return 2
        with hold_deletions(postgres_url.for_libpq(url)):
            return subprocess.run(command, check=False).returncode
    except ValidationError as error:
        print(f"settings: {error}", file=sys.stderr)
        return 2
    except BackupRuns:
        print("another backup is being made: wait until it has ended", file=sys.stderr)
    except psycopg.Error as error:
        print(f"Postgres: {' '.join(str(error).split())}", file=sys.stderr)
    except OSError as error:
        print(f"can't run {command[0]!r}: {error.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
