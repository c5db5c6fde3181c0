"""What runs in a home: which parts, in which order, wired how."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import psycopg
from sqlalchemy import func, select

from weft_core.lifecycle import ACTIVE, JobState
from weft_core.objects import Objects, StoreError
from weft_core.settings import Settings
from weft_core.store import migrate
from weft_core.store.database import Database
from weft_core.store.models import Job
from weft_embedded import first_start, ports, profile
from weft_embedded.config import External, external_servers, service_environment
from weft_embedded.home import Home, HomeError
from weft_embedded.part import Part
from weft_embedded.servers import PostgresServer, RedisServer, SeaweedServer
from weft_embedded.servers.seaweedfs import S3Identity
from weft_embedded.services import ApiService, WorkerService

DEFAULT_PORT = 8080
_ANY = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_LEARNERS = "default"  # name of the S3 identity that users' jobs get


@dataclass(frozen=True)
class Choice:
    """What of the stack to run."""

    api: bool = True
    worker: bool = True
    profile: bool = True


class Stack:
    """The parts of one home; nothing is started by making it."""

    def __init__(self, home: Home, settings: Settings, choice: Choice) -> None:
        self.home = home
        self.given = settings
        self.choice = choice
        self.external = external_servers(settings)
        self.port = home.load_port() or DEFAULT_PORT
        self.hint: str | None = None
        self._postgres = PostgresServer(home.postgres, home.sockets, home.run, home.logs / "postgres.log")
        self._redis = RedisServer(home.redis, home.sockets, home.run, home.logs / "redis.log")
        self._s3 = SeaweedServer(home.s3, self._identities(), home.run, home.logs / "s3.log")

    def choose_port(self, wanted: int | None) -> None:
        """The API's port: asked for, or set, or that of the last start, or 8080; 0 asks for any free one.

        Raises:
            HomeError: it is taken.
        """
        host, kept = self.given.api.host, self.home.load_port()
        if wanted is None and "port" in self.given.api.model_fields_set:
            wanted = self.given.api.port
        if wanted == 0:
            self.port = kept if kept and ports.is_free(kept, host) else ports.pick()
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
        external: External = self.external
        chosen = [(external.postgres, self._postgres), (external.redis, self._redis), (external.s3, self._s3)]
        return [server for is_external, server in chosen if not is_external]

    def services(self) -> list[Part]:
        """API and worker; to be asked for when the servers have been started, as these choose their ports then."""
        environment = self.environment()
        parts: list[Part] = []
        if self.choice.api:
            parts.append(ApiService(self.local_url, environment, self.home.run, self.home.logs / "api.log"))
        if self.choice.worker:
            parts.append(WorkerService(environment, self.home.run, self.home.logs / "worker.log"))
        return parts

    def leftovers(self) -> list[Part]:
        """Every part that an earlier supervisor may have left, in the order in which they are to be ended."""
        api = ApiService(self.local_url, {}, self.home.run, self.home.logs / "api.log")
        worker = WorkerService({}, self.home.run, self.home.logs / "worker.log")
        return [worker, api, self._s3, self._redis, self._postgres]

    # --- wiring ---

    @property
    def local_url(self) -> str:
        """Where the API answers on this machine."""
        host = self.given.api.host
        return f"http://{ports.HOST if host in _ANY else host}:{self.port}"

    @property
    def public_url(self) -> str:
        return self.given.api.public_url if "public_url" in self.given.api.model_fields_set else self.local_url

    def environment(self) -> dict[str, str]:
        """The environment of API, worker and administrators' commands."""
        wired: dict[str, str | int] = {"WEFT_API__PORT": self.port, "WEFT_API__PUBLIC_URL": self.public_url}
        if not self.external.postgres:
            wired["WEFT_DATABASE_URL"] = self._postgres.url
        if not self.external.redis:
            wired["WEFT_REDIS_URL"] = self._redis.url
        if not self.external.s3:
            wired["WEFT_S3__ENDPOINT"] = self._s3.url
        return service_environment(self.home, **wired)

    def settings(self) -> Settings:
        """The settings as API and worker get them."""
        given, s3 = self.given, self.given.s3
        update: dict[str, object] = {}
        if not self.external.postgres:
            update["database_url"] = type(given.database_url)(self._postgres.url)
        if not self.external.s3:
            update["s3"] = s3.model_copy(update={"endpoint": self._s3.url})
        return given.model_copy(update=update)

    def _identities(self) -> list[S3Identity]:
        """The administrator of the store, and who users' jobs are: that one can't see the installation's own bucket."""
        s3 = self.given.s3
        learners = S3Identity.generate(_LEARNERS)
        try:
            kept = json.loads((self.home.s3 / "identities.json").read_text())
            pair = next(one for one in kept["identities"] if one["name"] == _LEARNERS)["credentials"][0]
            learners = S3Identity(_LEARNERS, pair["accessKey"], pair["secretKey"])
        except (OSError, ValueError, KeyError, StopIteration):
            pass
        closed = S3Identity(_LEARNERS, learners.access_key, learners.secret_key, denied=(s3.bucket,))
        return [S3Identity("weft", s3.access_key, s3.secret_key.get_secret_value()), closed]

    # --- what is done with it ---

    def migrate(self) -> None:
        """Bring the database to this version, and what the first start needs into it; write the CLI's profile."""
        database = Database(self.settings().database_url.get_secret_value(), pool_size=1)
        try:
            migrate.upgrade(database.engine)
            store = None
            if not self.external.s3:
                store = first_start.EmbeddedStore(self._s3.url, self._s3.identities[1])
            token = first_start.ensure_accounts(database, self.given, profile.own_token(self.home), store)
        finally:
            database.close()
        profile.write_own(self.home, self.public_url, token)
        if self.choice.profile:
            self.hint = profile.write_users(self.home, self.public_url, token)

    def create_bucket(self) -> None:
        """Make the installation's own bucket unless it is there. Raises StoreError."""
        bucket = Objects(self.settings().s3)
        try:
            bucket.check()
        except StoreError as error:
            if error.kind != "no_container":
                raise
            bucket.create()

    def has_runs(self) -> bool:
        """Whether the local engine has ever run something here."""
        return (self.home.path / "runs").exists()

    def interrupt_command(self, grace: float) -> list[str]:
        """The command that ends the local engine's runs, giving them ``grace`` seconds to save a checkpoint."""
        module = "weft_workers.engines.local"
        return [sys.executable, "-m", module, "interrupt", "--home", str(self.home.path), "--grace", f"{grace:.0f}"]


def running_jobs(database_url: str) -> int | None:
    """How many jobs are active; None when the database does not say."""
    database = Database(database_url, pool_size=1)
    try:
        with database.transaction() as session:
            states = [JobState(state).value for state in ACTIVE]
            return session.scalar(select(func.count()).select_from(Job).where(Job.state.in_(states)))
    except psycopg.Error:
        return None
    finally:
        database.close()
