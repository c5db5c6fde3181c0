"""Real servers for the tests: PostgreSQL, Redis and S3, as ``weft up`` runs them, but less careful about their data."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from pydantic import SecretStr
from tests.databases import Databases

from weft_core.settings import DatastoreSettings, S3Settings
from weft_embedded import ports
from weft_embedded.servers import PostgresServer, RedisServer, SeaweedServer
from weft_embedded.servers.seaweedfs import S3Identity

# Above the ports that Weft chooses by chance and below those that the kernel gives to outgoing connections, so that
# nothing else takes a port before the test uses it. Each process of pytest has a part of them.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 6
_ports = itertools.cycle(range(32_001 + 127 * _WORKER, 32_001 + 127 * (_WORKER + 1)))


def free_port() -> int:
    """A port on which nothing listens, and which no other test is given soon."""
    return next(port for port in _ports if ports.is_free(port))


class Servers:
    """The servers of one test session, each started when first asked for, in a short private folder."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="weft-test-", dir="/tmp"))  # short: it holds sockets
        self._numbers = itertools.count(1)

    @cached_property
    def postgres(self) -> PostgresServer:
        server = PostgresServer(
            self.folder / "postgres", self.folder, self.folder, self.folder / "postgres.log", durable=False
        )
        server.start()
        return server

    @cached_property
    def redis(self) -> RedisServer:
        server = RedisServer(self.folder / "redis", self.folder, self.folder, self.folder / "redis.log")
        server.start()
        return server

    @cached_property
    def s3(self) -> SeaweedServer:
        identities = [S3Identity.generate("weft"), S3Identity.generate("users", denied=("installation",))]
        server = SeaweedServer(self.folder / "s3", identities, self.folder, self.folder / "s3.log")
        server.start()
        return server

    def stop(self) -> None:
        """Stop what was started, and leave nothing on the disk."""
        for name in ("s3", "redis", "postgres"):
            if name in self.__dict__:
                self.__dict__[name].stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- databases ---

    @cached_property
    def databases(self) -> Databases:
        return Databases(self.postgres)

    def database_url(self) -> AbstractContextManager[str]:
        """The URL of an empty database with the newest schema, which is gone at the end."""
        return self.databases.url()

    def without_schema(self) -> AbstractContextManager[str]:
        """The URL of a database without any table, which is gone at the end."""
        return self.databases.without_schema()

    # --- buckets ---

    def shared_store(self) -> DatastoreSettings:
        """The store as one that issues temporary keys for projects that share it. The bucket `installation` is closed
        to them."""
        identity = self.s3.identities[1]
        return DatastoreSettings(
            endpoint=self.s3.url,
            access_key=identity.access_key,
            secret_key=SecretStr(identity.secret_key),
            temporary_keys=True,
        )

    def bucket(self) -> S3Settings:
        """A fresh bucket, with the credentials of the store's administrator."""
        identity = self.s3.identities[0]
        settings = S3Settings(
            endpoint=self.s3.url,
            access_key=identity.access_key,
            secret_key=SecretStr(identity.secret_key),
            bucket=f"weft-{next(self._numbers)}",
        )
        self.s3.make_bucket(settings.bucket)
        return settings
