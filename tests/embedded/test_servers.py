"""The three servers by themselves, and the fixtures that all tests stand on."""

from __future__ import annotations

import socket
from pathlib import Path

import boto3
import pytest
import redis
from botocore.exceptions import ClientError
from sqlalchemy import text

from weft_core.settings import S3Settings, Settings
from weft_core.store.database import Database
from weft_core.store.models import Project
from weft_embedded.servers.seaweedfs import S3Identity, SeaweedServer


def test_database_is_empty_and_has_the_schema(database: Database) -> None:
    with database.transaction() as session:
        assert session.query(Project).count() == 0
        session.add(Project(id="p-1", name="one"))


def test_database_is_another_one_for_each_test(database: Database) -> None:
    with database.transaction() as session:
        assert session.query(Project).count() == 0


def test_settings_reach_all_three(settings: Settings) -> None:
    database = Database(settings.database_url.get_secret_value())
    with database.transaction() as session:
        assert session.scalar(text("show listen_addresses")) == ""
    database.close()
    with redis.Redis.from_url(settings.redis_url.get_secret_value()) as client:
        assert client.ping()
        assert client.config_get("port") == {"port": "0"}
    store = boto3.client(
        "s3",
        endpoint_url=settings.s3.endpoint,
        region_name=settings.s3.region,
        aws_access_key_id=settings.s3.access_key,
        aws_secret_access_key=settings.s3.secret_key.get_secret_value(),
    )
    store.put_object(Bucket=settings.s3.bucket, Key="a/b", Body=b"hello")
    assert store.get_object(Bucket=settings.s3.bucket, Key="a/b")["Body"].read() == b"hello"


def test_the_store_wants_credentials(s3: S3Settings) -> None:
    stranger = boto3.client(
        "s3", endpoint_url=s3.endpoint, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y"
    )
    with pytest.raises(ClientError, match="InvalidAccessKeyId"):
        stranger.list_objects_v2(Bucket=s3.bucket)


def test_a_port_that_is_taken_between_look_and_use_is_replaced(tmp_path: Path) -> None:
    with socket.socket() as other:

        class Robbed(SeaweedServer):
            def command(self) -> list[str]:
                if other.getsockname()[1] == 0:  # the first start only
                    other.bind(("127.0.0.1", self._ports["volume.grpc"]))
                    other.listen()
                return super().command()

        store = Robbed(tmp_path / "s3", [S3Identity.generate("weft")], tmp_path, tmp_path / "s3.log")
        try:
            store.start()
            taken = other.getsockname()[1]
            assert taken
            assert taken not in store._ports.values()
            assert f"grpc port {taken}: listen tcp 127.0.0.1:{taken}: bind" in store.log.read_text()
        finally:
            store.stop()
