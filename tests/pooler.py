"""A real PgBouncer in front of a test's Postgres: each transaction gets the next of a few connections."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import psycopg
from psycopg.rows import dict_row

from weft_core import postgres_url
from weft_embedded.part import Part, PartError
from weft_embedded.servers import PostgresServer
from weft_embedded.servers.postgres import USER
from weft_embedded.servers.unprivileged import choose_way, hand_over

_PORT = 6432
"""Only the name of its socket, in a folder of its own."""


def program() -> str | None:
    """Where PgBouncer is installed; Debian's is not on the path of ordinary users."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


class Pooler(Part):
    """PgBouncer in its mode ``transaction``.

    Args:
        folder: its own; the path must be short, as it holds its socket.
        connections: those to each database of Postgres.
    """

    name = "pgbouncer"
    label = "PgBouncer"
    stop_signal = signal.SIGINT

    def __init__(self, postgres: PostgresServer, folder: Path, *, connections: int) -> None:
        folder.mkdir(mode=0o700)
        super().__init__(folder, folder / "log")
        self._postgres = postgres
        self._connections = connections
        self._settings = folder / "pgbouncer.ini"

    def url_of(self, database: str, *, pooled: bool = True) -> str:
        """The URL of a database of Postgres, through PgBouncer."""
        host = quote(str(self.run), safe="/")
        url = f"postgresql+psycopg://{USER}@/{database}?host={host}&port={_PORT}"
        return f"{url}&pgbouncer=true" if pooled else url

    def console(self) -> psycopg.Connection:
        """Its console, which knows only the simple protocol."""
        url = postgres_url.for_libpq(self.url_of("pgbouncer"))
        return psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor)

    def count(self, kind: Literal["clients", "servers"], database: str) -> int:
        """The open connections of its clients to a database, or its own to Postgres."""
        with self.console() as console:
            found = console.cursor(row_factory=dict_row).execute(f"show {kind}".encode()).fetchall()
        return sum(row["database"] == database for row in found)

    def prepare(self) -> None:
        found = program()
        if found is None:
            raise PartError("no pgbouncer is installed")
        # From 1.21 on it can keep prepared statements. As in older versions, it keeps none.
        version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
        numbers = re.search(r"([0-9]+)\.([0-9]+)", version)
        keeps = numbers is not None and (int(numbers[1]), int(numbers[2])) >= (1, 21)
        self._settings.write_text(
            f"""[databases]
* = host={self._postgres.sockets} user={USER}
[pgbouncer]
pool_mode = transaction
default_pool_size = {self._connections}
max_client_conn = 1000
query_wait_timeout = 5
server_login_retry = 1
auth_type = any
listen_port = {_PORT}
unix_socket_dir = {self.run}
unix_socket_mode = 0700
admin_users = {USER}
{"max_prepared_statements = 0" if keeps else ""}
"""
        )
        self.way = choose_way(Path(found), self.run, self._settings)
        hand_over(self.run, self.way)

    def command(self) -> list[str]:
        return [program() or "", str(self._settings)]

    def health(self) -> str | None:
        try:
            with psycopg.connect(
                postgres_url.for_libpq(self.url_of("postgres")), autocommit=True, prepare_threshold=None
            ):
                return None
        except psycopg.Error as error:
            return str(error).strip().splitlines()[-1]
