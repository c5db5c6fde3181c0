"""Requests to users' stores go to the address that was checked."""

from __future__ import annotations

import datetime
import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.core.dns import dns
from tests.core.test_objects import location

from weft_core.launch import S3Location
from weft_core.objects import S3Store, StoreError
from weft_core.outgoing import NotAllowed, Outgoing
from weft_core.settings import S3Settings

_LIST = b"<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
PUBLIC = "93.184.215.14"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.hosts.append(self.headers["Host"])
        if self.server.location:
            self.send_response(302)
            self.send_header("Location", self.server.location)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(_LIST)))
        self.end_headers()
        self.wfile.write(_LIST)

    def log_message(self, *_: object) -> None: ...


class Server(http.server.ThreadingHTTPServer):
    location: str | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hosts: list[str] = []

    def get_request(self) -> tuple[object, object]:  # type: ignore[override]
        found = super().get_request()
        self.hosts.append("connected")
        return found


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def place(endpoint: str, ca: str | None = None) -> S3Location:
    return S3Location(endpoint=endpoint, access_key="a", secret_key="b", container="b", ca=ca)


def test_a_name_that_points_elsewhere_after_the_check_leads_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Server()) as inside, dns(PUBLIC, "127.0.0.1") as names:
        store = S3Store(place(f"https://store.example:{inside.server_port}"), Outgoing([], resolve=names.resolve))
        for _ in range(2):  # the name points to this machine by the second time at the latest
            with pytest.raises(StoreError, match="can't reach"):
                store.check()
        assert names.asked > 1
        assert inside.hosts == []
    assert "127.0.0.1" in caplog.text, "the detail is for the log"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{}", "https://127.0.0.1:{}", "http://[::1]:{}", "http://localhost:{}"]
)
def test_this_machine_is_not_called(url: str) -> None:
    with serving(Server()) as inside:
        store = S3Store(place(url.format(inside.server_port)), Outgoing([]))
        closed = S3Store(place(url.format(1)), Outgoing([]))
        messages = []
        for each in (store, closed):
            with pytest.raises(StoreError) as caught:
                each.check()
            messages.append(str(caught.value).partition(": ")[2])
        assert messages[0] == messages[1], "an open port looks as a closed one does"
        assert inside.hosts == []


@pytest.mark.parametrize("url", ["ftp://store.example", "https://", "https://store.example:port", "store"])
def test_what_is_no_url_of_a_store(url: str) -> None:
    with pytest.raises(NotAllowed, match="expected a URL such as"):
        Outgoing(None).check(url)


def test_the_installations_own_store_needs_no_entry(s3: S3Settings) -> None:
    S3Store(location(s3), Outgoing([], own=[s3.endpoint])).check()
    other_port = f"http://127.0.0.1:{(urlsplit(s3.endpoint).port or 0) + 1}"
    with pytest.raises(StoreError, match="expected https://"):
        S3Store(location(s3), Outgoing([], own=[other_port])).check()


def test_a_listed_name_is_called_by_its_name(s3: S3Settings) -> None:
    """The signature of a request covers the header Host."""
    with dns("127.0.0.1") as names:
        door = Outgoing(["store.example"], resolve=names.resolve)
        store = S3Store(location(s3, endpoint=f"http://store.example:{urlsplit(s3.endpoint).port}"), door)
        store.put("pinned/1", b"one")
        assert store.get("pinned/1") == b"one"
        store.delete(["pinned/1"])
        assert names.asked == 1, "a connection that is there is used again"


def test_redirects_are_not_followed() -> None:
    with serving(Server()) as other, serving(Server()) as store:
        store.location = f"http://127.0.0.1:{other.server_port}/b"
        with pytest.raises(StoreError):
            S3Store(place(f"http://127.0.0.1:{store.server_port}"), Outgoing(["127.0.0.1"])).check()
        assert store.hosts
        assert other.hosts == []


def test_no_proxy_looks_names_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Server()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.server_port}")
        with pytest.raises(StoreError):
            S3Store(place("http://127.0.0.1:1"), Outgoing([])).check()
        assert proxy.hosts == []


def test_tls_is_about_the_name(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store.example")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("store.example")]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "both.pem").write_bytes(secret + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    shown: list[str] = []
    context.sni_callback = lambda _, host, __: shown.append(host)
    server = Server()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server), dns("127.0.0.1") as names:
        door = Outgoing(["127.0.0.1"], resolve=names.resolve)
        S3Store(place(f"https://store.example:{server.server_port}", certificate.decode()), door).check()
        assert shown == ["store.example"]
        assert server.hosts[-1] == f"store.example:{server.server_port}"
        with pytest.raises(StoreError, match="certificate"):
            S3Store(place(f"https://other.example:{server.server_port}", certificate.decode()), door).check()
