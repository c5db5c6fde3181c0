"""Makes a backup of a home, whether it runs or not."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, cast

import psycopg

from weft_core.objects import StoreError
from weft_core.store.backups import BackupRuns, hold_deletions
from weft_core.words import count, size
from weft_embedded.backup.archive import FORMAT, PIECE, Header, Writer
from weft_embedded.backup.buckets import Buckets
from weft_embedded.backup.report import Report
from weft_embedded.config import read_settings
from weft_embedded.home import Home, HomeError
from weft_embedded.part import Part, PartError
from weft_embedded.servers import PostgresServer
from weft_embedded.stack import Choice, Stack

HOME_FILES = ("weft.toml", "client.toml", "port", "s3/identities.json")
"""Files of a home that a new machine needs. Everything else is data, or is made anew."""


def back_up(home: Home, target: Path, passphrase: str | None, report: Report) -> Path:
    """Write a backup of ``home``; returns its file, which is whole or not there.

    Args:
        target: a folder, or the file's name.

    Raises:
        HomeError: there is nothing to back up, the file exists, or something failed.
    """
    if not home.exists():
        raise HomeError(f"no Weft was started in {home.path}: there is nothing to back up")
    path = _file_of(target)
    with ExitStack() as stack:
        running = stack.enter_context(_running(home, report))
        stack.enter_context(_explained(path))
        database = running.database_url()
        # Deletions first, then the database, then the objects, so that every object that rows name is still there.
        stack.enter_context(hold_deletions(database))
        with _new_file(path) as file:
            writer = Writer(cast(BinaryIO, file), _header(database), passphrase)
            for name in HOME_FILES:
                with suppress(FileNotFoundError):
                    writer.add(f"home/{name}", (home.path / name).read_bytes())
            with report.spinner("copying the database"):
                dumped = _dump(writer, running)
            buckets = Buckets(running.s3_endpoint, running.given.s3)
            with report.spinner("listing the objects"):
                expected = buckets.size()
            with report.bar("copying the objects", expected) as progress:
                objects = buckets.save(writer, progress)
            writer.finish()
    report.say(f"{path}: {size(path.stat().st_size)}; database {size(dumped)}, {count(objects, 'object')}")
    if passphrase:
        report.say("It is encrypted. Without the passphrase nobody can read it, you included.")
    else:
        report.say(
            "It is not encrypted, and holds the keys and passwords of weft.toml, tokens, and all code, logs and "
            "results. Only its owner can read it (mode 0600). Keep it where you would keep a password, or use "
            "--encrypt."
        )
    return path


@contextmanager
def _running(home: Home, report: Report) -> Iterator[Stack]:
    """The home's stack with its database and its store up: those of `weft up`, or started for the backup."""
    home.open(check_room=False)
    if home.locked():
        if not home.load_state().ready:
            raise HomeError(
                f"`weft up` is not ready on {home.path}: wait until `weft status` shows all parts as running"
            )
        yield _own(Stack(home, read_settings(home), Choice()))
        return
    with home.lock():
        stack = _own(Stack(home, read_settings(home), Choice()))
        with report.spinner("starting the database and the store"), servers(stack):
            yield stack


def _own(stack: Stack) -> Stack:
    others = [name for name, given in (("database", stack.external.postgres), ("S3 store", stack.external.s3)) if given]
    if others:
        raise HomeError(
            f"the {' and the '.join(others)} of {stack.home.path} do not belong to `weft up` (weft.toml or "
            "WEFT_…): `weft backup` copies its own servers only; docs/backup.md says how to back up others"
        )
    return stack


@contextmanager
def servers(stack: Stack) -> Iterator[None]:
    """PostgreSQL and the store of a home that nobody runs; the caller holds its lock.

    Raises:
        PartError: one of them can't start.
    """
    started: list[Part] = []
    for left in stack.leftovers():
        left.end_leftover()
    try:
        for part in stack.servers():
            if part.name in ("postgres", "s3"):
                started.append(part)
                part.start()
        yield
    finally:
        for part in reversed(started):
            part.stop()


def _file_of(target: Path) -> Path:
    target = target.expanduser()
    if target.is_dir():
        target /= f"weft-{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}.backup"
    if target.exists():
        raise HomeError(f"{target} exists: give another name, or a folder")
    if not target.parent.is_dir():
        raise HomeError(f"there is no folder {target.parent}")
    return target


@contextmanager
def _new_file(path: Path) -> Iterator[tempfile._TemporaryFileWrapper[bytes]]:
    """A private file that gets its name when it is complete and on the disk."""
    file = tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False)  # noqa: SIM115
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(file.name, path)  # unlike a rename, it never replaces a file
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if path.exists():
                raise FileExistsError(path) from None
            Path(file.name).rename(path)
    finally:
        Path(file.name).unlink(missing_ok=True)


def _header(database: str) -> Header:
    with psycopg.connect(database) as connection:
        schema = connection.execute("select version_num from alembic_version").fetchone()
        installation = connection.execute("select id from installation").fetchone()
    if schema is None or installation is None:
        raise HomeError("the database is not prepared: `weft up` has never become ready here")
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Header(FORMAT, version("weft"), schema[0], created, socket.gethostname(), installation[0])


def _dump(writer: Writer, stack: Stack) -> int:
    """Copy the database as of one moment; returns the number of bytes."""
    total = number = 0
    with tempfile.TemporaryFile() as said:
        command = [PostgresServer.program("pg_dump"), "--format=custom", "--no-owner", "--no-privileges"]
        process = subprocess.Popen(
            [*command, f"--dbname={stack.database_url()}"], stdout=subprocess.PIPE, stderr=said, env={"LC_ALL": "C"}
        )
        assert process.stdout is not None
        try:
            while piece := process.stdout.read(PIECE):
                number += 1
                total += len(piece)
                writer.add(f"postgres/{number:06d}", piece)
            if process.wait() != 0:
                said.seek(0)
                raise HomeError(
                    f"the database can't be copied: {' '.join(said.read().decode(errors='replace').split())}"
                )
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    return total


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except BackupRuns:
        raise HomeError("another backup is being made: wait until it has ended") from None
    except FileExistsError:
        raise HomeError(f"{path} exists by now: give another name, or a folder") from None
    except psycopg.Error as error:
        raise HomeError(f"the database does not answer: {' '.join(str(error).split())}") from error
    except StoreError as error:
        raise HomeError(f"the objects can't be copied: {error}") from error
    except PartError as error:
        raise HomeError(str(error)) from error
    except OSError as error:
        raise HomeError(f"can't write {path}: {error.strerror or error}") from error
