"""PostgreSQL, Redis and an S3 store (SeaweedFS) as child processes, from wheels; the tests use the same classes."""

from __future__ import annotations

from weft_embedded.servers.gate import Gate
from weft_embedded.servers.postgres import PostgresServer
from weft_embedded.servers.redis import RedisServer
from weft_embedded.servers.seaweedfs import SeaweedServer

__all__ = ["Gate", "PostgresServer", "RedisServer", "SeaweedServer"]
