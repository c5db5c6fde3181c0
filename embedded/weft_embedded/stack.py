"""The parts that run in a home, their order, and their connections."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import psycopg

from weft_core import postgres_url
from weft_core.lifecycle.states import ACTIVE, JobState
from weft_core.settings import Settings
from weft_embedded import ports
from weft_embedded.config import External, external_servers, service_environment
from weft_embedded.fork_server import ForkServer
from weft_embedded.home import Home, HomeError
from weft_embedded.listening import LOOPBACK, Listening, resolve
from weft_embedded.part import Part, marked
from weft_embedded.servers import Gate, PostgresServer, RedisServer, SeaweedServer
from weft_embedded.servers.seaweedfs import S3Identity, read_identity
from weft_embedded.services import ApiService, Service, WorkerService

P = TypeVar("P", bound=Part)
DEFAULT_PORT = 8080
DATASTORE = "default"  # the S3 identity that gets temporary keys for users and their jobs


@dataclass(frozen=True)
class Choice:
    """The parts of the stack that are to run."""

    api: bool = True
    worker: bool = True
    profile: bool = True


class Stack:
    """The parts of one home; nothing is started by making it."""

    def __init__(self, home: Home, settings: Settings, choice: Choice) -> None:
        self.home = home
        self.given = settings
        self.choice = choice
        self.port = home.load_port() or DEFAULT_PORT
        self._postgres = PostgresServer(home.postgres, home.sockets, home.run, home.logs / "postgres.log")
        self._redis = RedisServer(home.redis, home.sockets, home.run, home.logs / "redis.log")
        self._s3 = SeaweedServer(home.s3, self._identities(), home.run, home.logs / "s3.log")
        self.listening = Listening()
        self._gate = self._make_gate()
        ours = {"postgres": self._postgres.url, "redis": self._redis.url, "s3": self._s3.url}
        self.external: External = external_servers(settings, ours)

    def choose_host(self, wanted: str | None) -> None:
        """Choose the address at which API and S3 listen: the one asked for, or set, or the last one, or 127.0.0.1.

        Raises:
            HomeError: nothing can listen there.
        """
        api, kept = self.given.api, self.home.load_host()
        public_url = api.public_url if "public_url" in api.model_fields_set else None
        host = (api.host if "host" in api.model_fields_set else kept or LOOPBACK) if wanted is None else wanted
        try:
            self.listening = resolve(host, public_url)
        except HomeError as error:
            if wanted is not None or host != kept:
                raise
            raise HomeError(
                f"{error}. It is the address of last time: `weft up --host ADDRESS` gives another"
            ) from None
        self._gate = self._make_gate()
        if wanted is not None:
            self.home.save_host(wanted)

    def choose_port(self, wanted: int | None) -> None:
        """The API's port: asked for, or set, or that of the last start, or 8080; 0 asks for any free one.

        Raises:
            HomeError: it is taken.
        """
        host, kept = self.listening.host, self.home.load_port()
        if wanted is None and "port" in self.given.api.model_fields_set:
            wanted = self.given.api.port
        if wanted == 0:
            self.port = kept if kept and ports.is_free(kept, host) else ports.pick(host=host)
        else:
            self.port = wanted or kept or DEFAULT_PORT
        if self.choice.api and not ports.is_free(self.port, host):
            raise HomeError(
                f"port {self.port} on {host} is taken by {ports.holder(self.port)}: "
                "end that, or choose another one (`weft up --port N`; 0 picks a free one)"
            )
        self.home.save_port(self.port)

    # --- parts ---

    def servers(self) -> list[Part]:
        """The servers that we run, in the order in which they are started."""
        external = self.external
        chosen = [(external.postgres, self._postgres), (external.redis, self._redis), (external.s3, self._s3)]
        chosen.append((external.s3 or not self.listening.is_open, self._gate))
        return self._patient([server for is_external, server in chosen if not is_external])

    def services(self) -> list[Service]:
        """API and worker; to be asked for when the servers have been started, as these choose their ports then."""
        environment = self.environment()
        parts: list[Service] = []
        if self.choice.api:
            parts.append(ApiService(self.local_url, environment, self.home.run, self.home.logs / "api.log"))
        if self.choice.worker:
            parts.append(WorkerService(self.database_url(), environment, self.home.run, self.home.logs / "worker.log"))
        return self._patient(parts)

    def _patient(self, parts: list[P]) -> list[P]:
        for part in parts:
            part.start_patience = self.given.startup_patience
        return parts

    def leftovers(self) -> list[Part]:
        """Every part that an earlier supervisor may have left, in the order in which they are to be ended."""
        api = ApiService(self.local_url, {}, self.home.run, self.home.logs / "api.log")
        worker = WorkerService("", {}, self.home.run, self.home.logs / "worker.log")
        return [worker, api, self._gate, self._s3, self._redis, self._postgres]

    # --- wiring ---

    @property
    def local_url(self) -> str:
        """The API's URL on this machine."""
        return f"http://{self.listening.local}:{self.port}"

    @property
    def public_url(self) -> str:
        """The API's URL for users and learners."""
        given = self.given.api
        return (
            given.public_url if "public_url" in given.model_fields_set else f"http://{self.listening.name}:{self.port}"
        )

    @property
    def open_to_others(self) -> str:
        """The parts that other machines may reach, in words for people; empty: none."""
        if not self.listening.is_open:
            return ""
        what = ["API"] * self.choice.api + ["S3"] * (not self.external.s3)
        return f"{' and '.join(what)} at {self.listening.host}, without TLS" if what else ""

    @property
    def public_s3(self) -> str:
        """The same of our own S3."""
        given = self.given.s3.public_endpoint if "public_endpoint" in self.given.s3.model_fields_set else None
        return given or (self._gate.url if self.listening.is_open else self._s3.url)

    def environment(self) -> dict[str, str]:
        """The environment of API, worker and administrators' commands."""
        wired: dict[str, str | int] = {
            "WEFT_API__HOST": self.listening.host,
            "WEFT_API__PORT": self.port,
            "WEFT_API__PUBLIC_URL": self.public_url,
            "WEFT_API__PROFILE_FILE": str(self.home.client_profile),
        }
        if not self.external.postgres:
            wired["WEFT_DATABASE_URL"] = self._postgres.url
        if not self.external.redis:
            wired["WEFT_REDIS_URL"] = self._redis.url
        if not self.external.s3:
            wired["WEFT_S3__ENDPOINT"] = self._s3.url
            wired["WEFT_S3__PUBLIC_ENDPOINT"] = self.public_s3
            if not self.given.datastore.access_key:
                keys = self._users
                wired["WEFT_DATASTORE__ACCESS_KEY"] = keys.access_key
                wired["WEFT_DATASTORE__SECRET_KEY"] = keys.secret_key
                wired["WEFT_DATASTORE__TEMPORARY_KEYS"] = "true"
        return service_environment(self.home, **wired)

    def sqlalchemy_url(self) -> str:
        """The database as the settings name it."""
        return self.given.database_url.get_secret_value() if self.external.postgres else self._postgres.url

    def database_url(self) -> str:
        """The database as libpq takes it."""
        return postgres_url.for_libpq(self.sqlalchemy_url())

    @property
    def s3_endpoint(self) -> str:
        """The store, as this machine reaches it."""
        return self.given.s3.endpoint if self.external.s3 else self._s3.url

    def _make_gate(self) -> Gate:
        kept, log = self.home.s3 / "gate-port", self.home.logs / "gate.log"
        return Gate(self.listening, lambda: self._s3.port, kept, self.home.run, log)

    def _identities(self) -> list[S3Identity]:
        """The administrator of the store, and the identity that gets temporary keys for users and their jobs. It can't
        open the installation's own bucket."""
        s3 = self.given.s3
        return [S3Identity("weft", s3.access_key, s3.secret_key.get_secret_value()), self._users]

    @cached_property
    def _users(self) -> S3Identity:
        kept = read_identity(self.home.s3, DATASTORE) or S3Identity.generate(DATASTORE)
        return replace(kept, denied=(self.given.s3.bucket,))

    # --- commands that are run along with it ---

    def prepare_arguments(self, what: str) -> list[str]:
        """The module that prepares the ``database``, or the ``bucket`` in somebody else's store, and its arguments."""
        wanted = {}
        if what == "database":
            wanted = {"--ours": not self.external.postgres, "--no-profile": not self.choice.profile}
        return [f"weft_embedded.prepare.{what}", *(flag for flag, is_wanted in wanted.items() if is_wanted)]

    def start_fork_server(self) -> ForkServer:
        """Begin to load what the start of this stack needs."""
        modules = ["weft_api.__main__"] * self.choice.api + ["weft_workers.__main__"] * self.choice.worker
        return ForkServer([*modules, "weft_embedded.prepare.database"], marked(os.environ, self.home.run))

    def make_bucket(self) -> None:
        """Make the installation's bucket in our own store, unless it is known to be there.

        Raises:
            OSError: the store does not answer just now.
            PartError: it refuses.
        """
        bucket = self.given.s3.bucket
        mark = self.home.s3 / f"has-bucket-{bucket}"
        if not mark.exists():
            self._s3.make_bucket(bucket)
            mark.touch()

    def has_runs(self) -> bool:
        """Whether the local engine has ever run something here."""
        return (self.home.path / "runs").exists()

    def interrupt_command(self, grace: float) -> list[str]:
        """The command that ends the local engine's runs, giving them ``grace`` seconds to save a checkpoint."""
        module = "weft_workers.engines.local"
        return [sys.executable, "-m", module, "interrupt", "--home", str(self.home.path), "--grace", f"{grace:.0f}"]


def running_jobs(database_url: str) -> int | None:
    """How many jobs are active; None when the database does not say."""
    states = [JobState(state).value for state in ACTIVE]
    try:
        with psycopg.connect(database_url, connect_timeout=1) as connection:
            row = connection.execute("select count(*) from jobs where state = any(%s)", [states]).fetchone()
    except psycopg.Error:
        return None
    return row[0] if row else None


def exposed_engines(database_url: str, seconds: float) -> tuple[set[str], str]:
    """The engines at which a worker has looked within the last ``seconds``, and those of them that do not keep jobs
    apart, or not in the network, in words for people."""
    query = """
        select name, coalesce(capacity ->> 'exposed', ''), coalesce(capacity ->> 'shared_network', '') from engines
        where seen_at > now() - make_interval(secs => %s) order by name
    """
    try:
        with psycopg.connect(database_url, autocommit=True, connect_timeout=2) as connection:
            rows = connection.execute(query, [seconds]).fetchall()
    except psycopg.Error:
        return set(), ""
    said = [
        f"engine {name} does not keep jobs apart: {exposed}"
        if exposed
        else f"jobs of engine {name} share a network: {shared}"
        for name, exposed, shared in rows
        if exposed or shared
    ]
    return {name for name, _, _ in rows}, "; ".join(said)
