"""Data from a real S3: through the node's cache, in shares, streamed; and faults on the way."""

from __future__ import annotations

import io
import ipaddress
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.core.test_objects import location
from tests.trainer.agents import Launch, spec
from tests.trainer.conftest import Bucket, Proxied, StartApi
from tests.trainer.faulty_s3 import Fault, FaultyS3, Request, times
from tests.trainer.inputs.test_downloads import folders

from weft_core.objects import S3Store as Objects
from weft_core.objects import StoreError
from weft_core.outgoing import Outgoing
from weft_core.settings import S3Settings
from weft_trainer import data as streaming
from weft_trainer.errors import DataError
from weft_trainer.globs import matcher
from weft_trainer.inputs import downloader
from weft_trainer.inputs.cache import Brought, CacheRequest, NodeCache
from weft_trainer.inputs.downloader import Downloader
from weft_trainer.inputs.selection import select, share
from weft_trainer.spec import DataInput, S3Location, parse_spec
from weft_trainer.stores.s3 import S3Store, next_page
from weft_trainer.stores.store import Stored


class Node:
    """Downloads as a learner does, into folders of its own, through one cache."""

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.folder = folder
        self.cache = NodeCache(folder / "cache", limit)
        self.warnings: list[str] = []
        self._jobs = 0

    def run(
        self, location: dict[str, Any], patience: float = 60.0, rank: int = 0, learners: int = 1, **source: Any
    ) -> Path:
        """Its DATA_DIR."""
        self._jobs += 1
        made = folders(self.folder / f"job-{self._jobs}")
        parsed = parse_spec(
            spec("true", rank=rank, learners=learners, data=[{"id": "cos", "location": location, **source}])
        )
        self.report = Downloader(self.cache, self.warnings.append, patience).run(parsed, made)
        return made.data


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# --- which objects ---


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("*.jpg", ["a.jpg", "x/y/b.jpg"], ["a.jpeg", "x.jpg/y"]),
        ("train/*.jpg", ["train/a.jpg"], ["train/x/a.jpg", "a.jpg", "other/train/a.jpg"]),
        ("train/**/*.jpg", ["train/a.jpg", "train/x/y/a.jpg"], ["a.jpg"]),
        ("train/", ["train/a", "train/x/y"], ["a", "untrain/a", "train"]),
        ("part-[0-3]?.tar", ["part-07.tar"], ["part-47.tar", "part-0.tar"]),
        ("[!a]*", ["b"], ["a"]),
        ("a+b (1).txt", ["a+b (1).txt", "x/a+b (1).txt"], ["aab 1.txt"]),
    ],
)
def test_patterns(pattern: str, taken: list[str], left: list[str]) -> None:
    wanted = matcher([pattern], [])
    assert [key for key in [*taken, *left] if wanted(key)] == taken
    unwanted = matcher([], [pattern])
    assert [key for key in [*taken, *left] if unwanted(key)] == left


def test_shares_are_disjoint_and_complete() -> None:
    where = S3Location("http://x", "", "", "bucket")
    objects = [Stored(f"{number:03d}", number) for number in range(101)]
    for learners in (1, 2, 3, 7):
        source = DataInput("cos", where, shard="learner")
        shares = [share(select(objects[::-1], source), source, rank, learners) for rank in range(learners)]
        assert sorted((item for share in shares for item in share), key=lambda item: item.key) == objects
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert shares == [share(select(objects, source), source, rank, learners) for rank in range(learners)]
        assert share(objects, source._replace(shard="none"), 0, learners) == objects


def test_patterns_and_shares_of_real_objects(node: Node, bucket: Bucket) -> None:
    names = ["a b.txt", "é+%.txt", "deep/er/1.txt", "deep/2.txt", "skip.bin", "deep/skip.txt"]
    for name in names:
        bucket.put(f"odd/{name}", name.encode())
    chosen: dict[str, Any] = {"include": ["*.txt"], "exclude": ["**/skip.*"]}
    assert files(node.run(bucket.location("odd"), **chosen)) == ["a b.txt", "deep/2.txt", "deep/er/1.txt", "é+%.txt"]
    shares = [
        files(node.run(bucket.location("odd"), rank=rank, learners=2, shard="learner", **chosen)) for rank in (0, 1)
    ]
    assert shares == [["a b.txt", "deep/er/1.txt"], ["deep/2.txt", "é+%.txt"]]
    with pytest.raises(DataError, match=r"include \['\*.jpgg'\] leaves none of 6 objects at .*/odd"):
        node.run(bucket.location("odd"), include=["*.jpgg"])
    with pytest.raises(DataError, match="shard: learner can't share 1 objects among 2 learners"):
        node.run(bucket.location("odd"), learners=2, shard="learner", include=["skip.bin"])


# --- the cache ---


def test_a_second_job_reads_no_bytes(
    node: Node, bucket: Bucket, proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloader, "_MANY", 20)  # several processes, as with many thousands
    for number in range(60):
        bucket.put(f"again/{number % 4}/{number}", b"%d" % number * 100)
    proxy = proxied()
    place = bucket.location("again", endpoint=proxy.url)
    first = node.run(place)
    assert len(proxy.reads) == 60
    second = node.run(place)
    assert len(proxy.reads) == 60
    assert [request.method for request in proxy.requests if request.method != "GET"] == ["HEAD"], (
        "may they be read? asked once"
    )
    assert files(first) == files(second)
    assert (second / "3/7").read_bytes() == b"7" * 100
    assert "60 of them from the node's cache" in node.report


def test_a_listing_of_several_pages(node: Node, bucket: Bucket, proxied: Proxied) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: bucket.put(f"pages/{n:04d} <&>", b"%d" % n), range(1001)))
    proxy = proxied()
    place = bucket.location("pages", endpoint=proxy.url)
    node.run(place)
    bucket.put("pages/1000 <&>", b"another")
    second = node.run(place)
    assert len(proxy.reads) == 1002, "of the second page one object is new, of the first none"
    assert len(files(second)) == 1001
    assert (second / "0007 <&>").read_bytes() == b"7"
    assert (second / "1000 <&>").read_bytes() == b"another"


@pytest.mark.parametrize(
    ("listing", "token"),
    [
        (b"<IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b</NextContinuationToken>", "a&b"),
        (b"<NextContinuationToken>a</NextContinuationToken><IsTruncated>true</IsTruncated>", "a"),
        (b"<IsTruncated>false</IsTruncated>", None),
        (b"<IsTruncated>false</IsTruncated><NextContinuationToken>a</NextContinuationToken>", None),
        (b'<IsTruncated a="">true</IsTruncated><NextContinuationToken >&#97;</NextContinuationToken>', "a"),
        (b"", None),
    ],
)
def test_what_asks_for_the_next_page(listing: bytes, token: str | None) -> None:
    assert next_page(b"<ListBucketResult>" + listing + b"</ListBucketResult>") == token


def test_a_hit_needs_credentials_that_may_read(node: Node, bucket: Bucket, proxied: Proxied) -> None:
    bucket.put("private/x", b"secret")
    proxy = proxied()
    place = bucket.location("private", endpoint=proxy.url)
    node.run(place)
    with pytest.raises(DataError, match="does not take these credentials"):
        node.run({**place, "secret_key": "another"})
    proxy.rule = lambda request: Fault(403) if request.method == "HEAD" else None  # may list, but not read
    with pytest.raises(DataError, match="may not do that"):
        node.run(place)
    assert not (node.folder / "job-3/work/data/x").exists()
    assert len(proxy.reads) == 1


def test_an_object_with_new_content_is_another(node: Node, bucket: Bucket) -> None:
    for content in (b"one", b"two"):
        bucket.put("renewed/x", content)
        assert (node.run(bucket.location("renewed")) / "x").read_bytes() == content


def test_the_cache_has_a_limit_and_drops_what_was_used_longest_ago(tmp_path: Path, bucket: Bucket) -> None:
    node = Node(tmp_path, limit=250_000)
    for name in "abcd":
        bucket.put(f"limit-{name}/{name}", os.urandom(100_000))
    folder = {name: node.run(bucket.location(f"limit-{name}")) for name in "ab"}
    assert used(node) == 200_000
    (folder["b"] / "b").unlink()  # that job is over, the other still runs
    old = next(path for path in objects(node) if path.stat().st_nlink == 1)
    node.run(bucket.location("limit-c"))
    assert not old.exists()
    assert used(node) == 200_000
    # Both in use: what finds no room goes by the cache, and the job has it nevertheless.
    assert (node.run(bucket.location("limit-d")) / "d").stat().st_size == 100_000
    assert used(node) == 200_000
    assert "has no room for all of it" in node.warnings[-1]
    assert (folder["a"] / "a").stat().st_size == 100_000


def objects(node: Node) -> list[Path]:
    return [path for path in (node.folder / "cache/objects").rglob("*") if path.is_file()]


def used(node: Node) -> int:
    return sum(path.stat().st_size for path in objects(node))


def test_what_killed_agents_leave_in_the_cache_harms_nobody(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "cache", 1000)
    request = CacheRequest.of(("x",), 5, 1.0, tmp_path / "target")
    code = f"""
import os
from pathlib import Path
from weft_trainer.inputs.cache import NodeCache, CacheRequest
def fetch(file):
    os.write(file, b"half of something longer")
    os.fchmod(file, 0o444)
    os.kill(os.getpid(), 9)
request = CacheRequest.of(("x",), 5, 1.0, Path({str(tmp_path / "other")!r}))
cache = NodeCache(Path({str(tmp_path / "cache")!r}), 1000)
with cache.room([CacheRequest.of(("y",), 999, 1.0, request.target)]):
    cache.bring(request, fetch)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with cache.room([request]) as chosen:
        assert chosen == {request.identity}, "what it had claimed is free again"
        assert cache.bring(request, lambda file: _write(file, b"whole")) is Brought.FETCHED
    assert Path(request.target).read_bytes() == b"whole"
    assert not list((tmp_path / "cache/parts").iterdir())
    assert not list((tmp_path / "cache/claims").iterdir())


def _write(file: int, data: bytes) -> None:
    assert os.write(file, data) == len(data)


def test_an_object_that_another_process_brings_is_waited_for_last(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "cache")
    request = CacheRequest.of(("x",), 1, 1.0, tmp_path / "target")

    def fetch(file: int) -> None:
        again = request._replace(target=str(tmp_path / "again"))
        assert cache.bring(again, lambda file: None, wait=False) is Brought.BUSY
        os.write(file, b"1")

    assert cache.bring(request, fetch) is Brought.FETCHED
    assert cache.bring(request._replace(target=str(tmp_path / "again")), fetch) is Brought.CACHED


def test_a_whole_object_is_left_to_the_process_that_is_about_to_move_it(tmp_path: Path) -> None:
    """It is read-only by then. An ordinary user, and root in a sandbox, can't open it for writing."""
    cache = NodeCache(tmp_path / "cache")
    request = CacheRequest.of(("x",), 5, 1.0, tmp_path / "target")
    code = f"""
from pathlib import Path
from weft_trainer.inputs.cache import NodeCache, CacheRequest
request = CacheRequest.of(("x",), 5, 1.0, {str(tmp_path / "other")!r})
cache = NodeCache(Path({str(tmp_path / "cache")!r}))
print(cache.bring(request, lambda file: None, wait=False).name)
"""
    ordinary = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []

    def fetch(file: int) -> None:
        _write(file, b"whole")
        os.fchmod(file, 0o444)
        other = subprocess.run([*ordinary, sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert other.stdout == "BUSY\n"

    assert cache.bring(request, fetch) is Brought.FETCHED
    assert Path(request.target).read_bytes() == b"whole"


# --- faults ---


@pytest.mark.parametrize(
    "fault",
    [Fault(503), Fault(keep=10_000_000), Fault(lost=True), Fault(pause=0.002)],
    ids=["503", "cut", "lost", "slow"],
)
def test_a_flapping_or_slow_store(node: Node, bucket: Bucket, proxied: Proxied, fault: Fault) -> None:
    content = (b"0123456789abcdef" * (1 << 16)) * 20
    if not bucket.keys("flapping/"):
        bucket.put("flapping/big", content)
        bucket.put("flapping/small", b"small")
    proxy = proxied(times(4, fault))
    folder = node.run(bucket.location("flapping", endpoint=proxy.url))
    assert (folder / "big").read_bytes() == content
    assert (folder / "small").read_bytes() == b"small"
    if fault.keep:
        assert sum("bytes=" in request.range for request in proxy.requests) > 2, "goes on where it broke off"


def test_a_store_that_stays_away_is_one_clear_error(node: Node, bucket: Bucket, proxied: Proxied) -> None:
    for number in range(20):
        bucket.put(f"away/{number}", b"x")
    proxy = proxied(lambda request: Fault(503) if request.is_object_read else None)
    with pytest.raises(
        DataError, match=r"away/\d+ can't be downloaded: an error \(503\) from http.* \(tried for 1 s\)"
    ):
        node.run(bucket.location("away", endpoint=proxy.url), patience=1.0)
    with pytest.raises(DataError, match=r"data store 'cos': .* does not answer: .* \(tried for 1 s\)"):
        node.run(bucket.location("away", endpoint="http://127.0.0.1:9"), patience=1.0)


def test_a_store_whose_name_is_not_known_is_given_up_soon(node: Node, bucket: Bucket) -> None:
    """Such a name is usually a typing error. Results wait for it as for any store that can't be reached."""
    location = bucket.location("data", endpoint="http://store.invalid:9")
    name = r"data store 'cos': .*the name 'store\.invalid' can't be resolved \(.*\) \(tried for (5|20) s\)"
    with pytest.raises(DataError, match=name):
        node.run(location, patience=1e6)


def test_an_object_that_changes_underneath(node: Node, bucket: Bucket, proxied: Proxied) -> None:
    bucket.put("changes/x", bytes(40 << 20))
    once = times(1, Fault(), lambda request: request.is_object_read)

    def change(request: Request) -> Fault | None:
        if once(request):
            bucket.put("changes/x", b"1" * (40 << 20))
        return None

    proxy = proxied(change)
    with pytest.raises(DataError, match="changes/x can't be downloaded: it was replaced while it was being downloaded"):
        node.run(bucket.location("changes", endpoint=proxy.url))
    assert not objects(node)

    def delete(request: Request) -> Fault | None:
        if request.is_object_read:
            bucket.client.delete_object(Bucket=bucket.location("")["container"], Key="changes/x")
        return None

    proxy.rule = delete
    with pytest.raises(DataError, match="changes/x can't be downloaded: it is not there any more"):
        node.run(bucket.location("changes", endpoint=proxy.url))


# --- streams ---

_READ = """
import io, os, sys, tarfile
from weft_trainer.data import Stream
stream = Stream("cos")
print(len(stream), [item.key for item in stream], sum(item.size for item in stream))
for epoch in (0, 1):
    shares = [[key for key, data in stream.shuffled(epoch).split(rank, 2).prefetch()] for rank in (0, 1)]
    keys = [item.key for item in stream.shuffled(epoch)]
    print(shares == [keys[rank::2] for rank in (0, 1)], sorted(sum(shares, [])))
with stream["set.tar"].open() as file:
    print(tarfile.open(fileobj=file).getnames())
print(stream["1"].read())
print(os.listdir(os.environ["DATA_DIR"]), "secret" in open(os.environ["WEFT_STREAM_DIR"] + "/cos.jsonl").read())
"""


def test_data_that_is_streamed(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("one", "two"):
            member = tarfile.TarInfo(name)
            member.size = 3 << 20
            archive.addfile(member, io.BytesIO(os.urandom(member.size)))
    bucket.put("stream/set.tar", out.getvalue())
    for number in range(5):
        bucket.put(f"stream/{number}", b"%d" % number * 10)
    bucket.put("stream/left.txt", b"")
    source = {"id": "cos", "location": bucket.location("stream"), "mode": "stream", "exclude": ["*.txt"]}
    api = start_api(f"python -c '{_READ}'".replace("'secret'", bucket.location("")["secret_key"]), data=[source])
    agent = launch(api)
    assert agent.wait() == 0, agent.log.read_text() + "\n".join(api.learners[0].lines)
    keys = [*map(str, range(5)), "set.tar"]
    assert api.learners[0].printed == [
        f"6 {keys} {50 + len(out.getvalue())}",
        f"True {keys}",
        f"True {keys}",
        "['one', 'two']",
        "b'1111111111'",
        "[] False",
    ]
    assert api.learners[0].messages[0] == "6 files to stream"
    assert bucket.location("")["secret_key"] not in (agent.workdir / "streams/cos.jsonl").read_text()


def test_a_stream_goes_on_after_a_break_and_sees_a_change(
    node: Node, bucket: Bucket, proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(3 << 20)
    bucket.put("broken/x", content)
    bucket.put("broken/y", b"y")
    proxy = proxied()
    node.run(bucket.location("broken", endpoint=proxy.url), mode="stream")
    monkeypatch.setenv("WEFT_STREAM_DIR", str(node.folder / "job-1/work/streams"))
    monkeypatch.setattr(streaming, "PATIENCE", 60.0)
    stream = streaming.Stream()
    proxy.rule = times(2, Fault(keep=1 << 20))
    assert stream["x"].read() == content
    proxy.rule = times(2, Fault(keep=1 << 20))
    with stream["x"].open() as file:
        assert file.read() == content
        assert file.seek(-5, io.SEEK_END) == len(content) - 5
        assert file.read() == content[-5:]
        file.seek(1000)
        assert file.read(10) == content[1000:1010]
    bucket.put("broken/y", b"z")
    reads: list[Callable[[], bytes]] = [lambda: stream["y"].read(), lambda: stream["y"].open().read()]
    for read in reads:
        with pytest.raises(DataError, match="y can't be read: it was replaced since the job began"):
            read()
    with pytest.raises(DataError, match="no data store 'other' in mode stream; there are: cos"):
        streaming.Stream("other")
    lines = (node.folder / "job-1/work/streams/cos.jsonl").read_text().splitlines()
    assert [set(json.loads(line)) for line in lines] == [{"key", "size", "etag", "url"}] * 2


# --- TLS ---


def test_a_store_behind_a_private_authority(node: Node, bucket: Bucket, s3: S3Settings, tmp_path: Path) -> None:
    """Data over TLS, results back over it, and the server's own look into the store."""
    bucket.put("tls/x", b"x" * 100)
    ca, context = _authority(tmp_path)
    with FaultyS3(s3.endpoint).serving(context) as proxy:
        place = bucket.location("tls", endpoint=proxy.url)
        with pytest.raises(DataError, match=r"certificate of https.* is not trusted .* into the connection's 'ca'"):
            node.run(place)
        assert (node.run({**place, "ca": ca}) / "x").read_bytes() == b"x" * 100
        S3Store(S3Location(**{**place, "ca": ca})).put_bytes("y", b"back")
        Objects(location(s3, endpoint=proxy.url, ca=ca), Outgoing(["127.0.0.1"])).check()
        with pytest.raises(StoreError, match="is not trusted"):
            Objects(location(s3, endpoint=proxy.url), Outgoing(["127.0.0.1"])).check()
    assert bucket.get("tls/y") == b"back"


def _authority(folder: Path) -> tuple[str, ssl.SSLContext]:
    """A private authority's certificate (PEM), and a server's context with one that it has signed."""
    now = datetime.now(UTC)

    def sign(name: str, key: Any, issuer: str, by: Any, *extensions: x509.ExtensionType) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(by, hashes.SHA256())

    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = sign("a private authority", ca_key, "a private authority", ca_key, x509.BasicConstraints(True, None))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    own = sign("store", key, "a private authority", ca_key, names)
    chain = folder / "store.pem"
    chain.write_bytes(
        own.public_bytes(Encoding.PEM)
        + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return ca.public_bytes(Encoding.PEM).decode(), context
