"""The three servers by themselves, and the fixtures that all tests stand on."""

from __future__ import annotations

import socket
import ssl
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
import redis
from botocore.exceptions import ClientError
from cryptography import x509
from mypy_boto3_s3 import S3Client
from sqlalchemy import text
from tests.servers import Servers

from weft_core.settings import S3Settings, Settings
from weft_core.store.database import Database
from weft_core.store.models import Project
from weft_embedded import probe
from weft_embedded.files import write_private
from weft_embedded.part import PartError
from weft_embedded.servers import mutual_tls
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


def test_the_store_makes_a_bucket_once_and_says_why_it_does_not(servers: Servers) -> None:
    for _ in range(2):
        servers.s3.make_bucket("weft-made")
    with pytest.raises(PartError, match=r"^S3 refuses to make the bucket 'No' \(s3\.bucket\): InvalidBucketName$"):
        servers.s3.make_bucket("No")


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


class Open(SeaweedServer):
    """As it was before its parts had certificates."""

    def _secure(self) -> None:
        write_private(self.data / "security.toml", f'[jwt.signing]\nkey = "{"ab" * 32}"\n')

    def health(self) -> str | None:
        try:
            _, topology = probe.http_get(f"http://127.0.0.1:{self._ports['master']}/dir/status")
            return None if b'"Max":0' not in topology and probe.http_get(f"{self.url}/healthz")[0] == 200 else "soon"
        except OSError as error:
            return str(error)


@contextmanager
def started(store: SeaweedServer) -> Iterator[S3Client]:
    try:
        store.start()
        wait_for(lambda: store.health() is None)
        identity = store.identities[0]
        yield boto3.client(
            "s3",
            endpoint_url=store.url,
            region_name="us-east-1",
            aws_access_key_id=identity.access_key,
            aws_secret_access_key=identity.secret_key,
        )
    finally:
        store.stop()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answer(store: SeaweedServer, port: str, tls: ssl.SSLContext | None) -> int:
    """The status of an answer to somebody who would delete a bucket; 0: there is none."""
    scheme = "https" if tls else "http"
    try:
        return probe.http_get(f"{scheme}://127.0.0.1:{store._ports[port]}/col/delete?collection=kept", tls)[0]
    except OSError:
        return 0


def speaks_grpc(family: int, place: object, tls: ssl.SSLContext | None) -> bool:
    """Whether a port answers the beginning of HTTP/2, on which gRPC is, with settings of its own."""
    try:
        with socket.socket(family) as plain:
            plain.settimeout(60)
            plain.connect(place)  # type: ignore[arg-type]
            with tls.wrap_socket(plain) if tls else plain as connected:
                connected.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                return connected.recv(9)[3:4] == b"\x04"
    except OSError:
        return False


def context(keys: Path | None, protocol: str = "h2") -> ssl.SSLContext:
    """A client with the certificate of a data folder, or without one, which believes every server."""
    found = ssl.create_default_context()
    found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    found.set_alpn_protocols([protocol])
    if keys:
        found.load_cert_chain(keys / mutual_tls.CERTIFICATE, keys / mutual_tls.KEY)
    return found


def test_its_parts_answer_nobody_without_their_key(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    mutual_tls.make_keys(tmp_path / "other")
    store = SeaweedServer(tmp_path / "s3", [S3Identity.generate("weft")], tmp_path, tmp_path / "s3.log")
    with started(store) as client:
        client.create_bucket(Bucket="kept")
        client.put_object(Bucket="kept", Key="a", Body=b"one")
        web = "http/1.1"
        for part in ("master", "volume", "filer"):
            answers = [answer(store, part, tls) for tls in (None, context(None, web), context(tmp_path / "other", web))]
            assert not [status for status in answers if status not in (0, 400)], (part, answers)
        for part in ("s3", "master", "volume", "filer"):
            port = store._ports[f"{part}.grpc"]
            places: list[tuple[int, object]] = [
                (socket.AF_INET, ("127.0.0.1", port)),
                (socket.AF_UNIX, f"/tmp/seaweedfs-{part}-grpc-{port}.sock"),
            ]
            for family, place in places:
                assert speaks_grpc(family, place, context(store.data)), place
                for tls in (None, context(None), context(tmp_path / "other")):
                    assert not speaks_grpc(family, place, tls), place
        assert client.get_object(Bucket="kept", Key="a")["Body"].read() == b"one"
        for name in (mutual_tls.KEY, "security.toml"):
            assert stat.S_IMODE((store.data / name).stat().st_mode) == 0o600


def test_a_data_folder_of_an_earlier_version_gets_keys_once(tmp_path: Path) -> None:
    identities = [S3Identity.generate("weft")]
    with started(Open(tmp_path / "s3", identities, tmp_path, tmp_path / "s3.log")) as client:
        client.create_bucket(Bucket="old")
        client.put_object(Bucket="old", Key="a", Body=b"one")
    kept = []
    for _ in range(2):
        store = SeaweedServer(tmp_path / "s3", identities, tmp_path, tmp_path / "s3.log")
        with started(store) as client:
            assert client.get_object(Bucket="old", Key="a")["Body"].read() == b"one"
            assert answer(store, "master", None) in (0, 400)
        kept.append([(store.data / name).read_bytes() for name in (mutual_tls.CERTIFICATE, "security.toml")])
    assert kept[0] == kept[1]
    assert b'key = "abab' in kept[0][1], "its earlier keys stay"
    certificate = x509.load_pem_x509_certificate(kept[0][0])
    assert certificate.not_valid_after_utc - datetime.now(UTC) > timedelta(days=50 * 365)
