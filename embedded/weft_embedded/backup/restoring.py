"""Makes a home from a backup.

All is built in a folder beside the new home, which gets its name when everything is there: an interrupted restore
leaves no home. The attempts that were running when the backup was made are ended as interrupted, which uses up no
retry. The workers then start the next ones from their checkpoints.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import psycopg

from weft_core.lifecycle.states import ACTIVE, TERMINAL, JobState, Outcome
from weft_core.objects import StoreError
from weft_core.settings import Settings
from weft_core.store import migrate
from weft_core.store.database import Database
from weft_core.words import count
from weft_embedded.backup.archive import Archive, ArchiveMember, Index
from weft_embedded.backup.buckets import Buckets
from weft_embedded.backup.report import Report
from weft_embedded.backup.taking import HOME_FILES, servers
from weft_embedded.config import read_settings
from weft_embedded.files import write_private
from weft_embedded.home import Home, HomeError
from weft_embedded.part import PartError
from weft_embedded.servers import PostgresServer
from weft_embedded.stack import Choice, Stack

_INTERRUPTED = "the installation was restored from a backup"


def check(archive: Archive, report: Report) -> Index:
    """Read a whole backup, and compare it with its checksums.

    Raises:
        HomeError: it is damaged, or of a newer version of Weft.
    """
    _check_version(archive)
    header = archive.header
    with _read(archive, "checking the backup", report) as progress:
        index = archive.check(progress)
    report.say(
        f"{archive.path} is complete: Weft {header.weft} on {header.host}, {header.created_at}, "
        f"{count(len(index.objects), 'object')}{', encrypted' if archive.encrypted else ''}"
    )
    return index


def restore(archive: Archive, home: Home, report: Report) -> None:
    """Make ``home`` from a backup; it is not started.

    Raises:
        HomeError: there is something at ``home``, the backup can't be used, or something failed. Nothing is left of it.
    """
    _check_free(home)
    index = check(archive, report)
    home.path.parent.mkdir(parents=True, exist_ok=True)
    building = Home(Path(tempfile.mkdtemp(prefix=f".{home.path.name}.", suffix=".restore", dir=home.path.parent)))
    try:
        with _explained(building):
            building.open()
            settings = _home_files(archive, building)
            with building.lock():
                interrupted, waiting = _fill(archive, index, building, settings, report)
            for passing in (building.run, building.logs):
                shutil.rmtree(passing)
            _check_free(home)
            building.path.rename(home.path)  # onto nothing, or onto an empty folder
    finally:
        shutil.rmtree(building.path, ignore_errors=True)
        if building.sockets != building.run:
            shutil.rmtree(building.sockets, ignore_errors=True)
    report.say(f"{home.path} is restored. `weft up --home {home.path}` starts it.")
    if interrupted:
        jobs = count(interrupted, "job")
        report.say(f"{jobs} ran when the backup was made: they start again, from their last checkpoints.")
    if waiting:
        report.say(f"{count(waiting, 'job')} waited: they start as soon as there is room.")
    _warn(settings, report)


def _warn(settings: Settings, report: Report) -> None:
    clusters = [name for name, engine in settings.engines.items() if engine.type != "local"]
    if clusters:
        report.say(
            f"Do not start it while the old installation runs: both would take the runs on {', '.join(clusters)} for "
            "their own, and stop each other's."
        )


def _check_free(home: Home) -> None:
    if home.exists():
        raise HomeError(f"{home.path} is an installation already: give another folder by --home")
    if home.path.exists() and (not home.path.is_dir() or any(home.path.iterdir())):
        raise HomeError(f"{home.path} is not empty: give a new folder by --home")


def _check_version(archive: Archive) -> None:
    """Whether this version knows the schema of the backup's database, so that it can bring it to its own."""
    header = archive.header
    if not migrate.knows(header.schema):
        raise HomeError(
            f"{archive.path} was made by a newer Weft ({header.weft}, schema {header.schema}): install that version, "
            "or a later one"
        )


def _home_files(archive: Archive, home: Home) -> Settings:
    """Write the files of the home, and read its settings."""
    wanted = {f"home/{name}": home.path / name for name in HOME_FILES}
    for member in archive.members():
        if member.name in wanted:
            path = wanted.pop(member.name)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_private(path, member.read().decode())
        elif member.name.startswith("postgres/"):
            break
    if not home.config.exists():
        raise HomeError(f"{archive.path} holds no weft.toml")
    return read_settings(home)


def _fill(archive: Archive, index: Index, home: Home, settings: Settings, report: Report) -> tuple[int, int]:
    """Fill the database and the store; returns the numbers of jobs that ran and that waited."""
    stack = Stack(home, settings, Choice())
    if stack.external.postgres or stack.external.s3:
        raise HomeError(
            "WEFT_DATABASE_URL or WEFT_S3__ENDPOINT is set: `weft restore` fills servers of its own, so unset them"
        )
    with report.spinner("starting the database and the store"), servers(stack):
        buckets = Buckets(stack.s3_endpoint, settings.s3)
        buckets.create(index.buckets)
        with _read(archive, "restoring", report) as progress:
            members = archive.members(progress)
            rest = _restore_database(members, stack)
            if rest is not None:
                buckets.put(chain([rest], members), index.objects)
        with report.spinner("bringing the database to this version"):
            database = Database(stack.sqlalchemy_url(), pool_size=1)
            try:
                migrate.upgrade(database.engine)
            finally:
                database.close()
            return _interrupt(stack.database_url())


def _restore_database(members: Iterator[ArchiveMember], stack: Stack) -> ArchiveMember | None:
    """Load the dump; returns the first member behind it."""
    with tempfile.TemporaryFile() as said:
        command = [PostgresServer.program("pg_restore"), "--no-owner", "--no-privileges", "--exit-on-error"]
        process = subprocess.Popen(
            [*command, f"--dbname={stack.database_url()}"], stdin=subprocess.PIPE, stderr=said, env={"LC_ALL": "C"}
        )
        assert process.stdin is not None
        behind = None
        try:
            for member in members:
                if member.name.startswith("postgres/"):
                    process.stdin.write(member.read())
                elif member.name.startswith("objects/"):
                    behind = member
                    break
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has said why
        finally:
            if process.wait() != 0:
                said.seek(0)
                words = " ".join(said.read().decode(errors="replace").split())
                raise HomeError(f"the database can't be restored: {words}")
    return behind


def _interrupt(database_url: str) -> tuple[int, int]:
    """End the attempts that were running somewhere else; returns the numbers of jobs that ran and that waited."""
    with psycopg.connect(database_url) as connection:
        connection.execute(
            """
            update attempts set outcome = %s, reason = %s, stop_requested_at = now(), grace_seconds = 0
            where ended_at is null and outcome is null
            """,
            [Outcome.INTERRUPTED.value, _INTERRUPTED],
        )
        connection.execute(
            """
            update jobs set lease_token = null, lease_owner = null, lease_until = null, next_step_at = now()
            where state <> all(%s) or next_step_at is not null
            """,
            [[JobState(state).value for state in TERMINAL]],
        )
        counts = [
            connection.execute("select count(*) from jobs where state = any(%s)", [states]).fetchone()
            for states in ([JobState(state).value for state in ACTIVE], [JobState.QUEUED.value])
        ]
    ran, waiting = (row[0] if row else 0 for row in counts)
    return ran, waiting


@contextmanager
def _read(archive: Archive, what: str, report: Report) -> Iterator[Callable[[int], None]]:
    """A bar for the position in the file."""
    with report.bar(what, archive.size) as advance:
        last = 0

        def move(position: int) -> None:
            nonlocal last
            advance(position - last)
            last = position

        yield move


@contextmanager
def _explained(home: Home) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise HomeError(f"the database can't be restored: {' '.join(str(error).split())}") from error
    except StoreError as error:
        raise HomeError(f"the objects can't be restored: {error}") from error
    except PartError as error:
        raise HomeError(str(error)) from error
    except OSError as error:
        raise HomeError(f"can't write {error.filename or home.path}: {error.strerror or error}") from error
