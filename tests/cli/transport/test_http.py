"""The transport over a bad network."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.cli.double import DROP, Answer, Double, as_json, problem

from weft import errors
from weft.client import Client
from weft.profile import Server
from weft.transport.http import Body, Transport


def test_a_post_is_repeated_with_one_key_until_it_gets_through(double: Double, transport: Transport) -> None:
    double.on("POST", "jobs", problem(503, "database_unavailable"), DROP, Answer(502), as_json({"id": "x"}, 201))
    assert transport.json("POST", "/jobs", json={"manifest": "m"}) == {"id": "x"}
    sent = double.requests("POST", "jobs")
    assert len(sent) == 4
    assert len({request.headers["idempotency-key"] for request in sent}) == 1
    assert all(request.json == {"manifest": "m"} for request in sent)
    assert all(request.headers["authorization"] == "Bearer weft_u_test" for request in sent)


def test_two_posts_have_two_keys(double: Double, transport: Transport) -> None:
    double.on("POST", "jobs", as_json({}))
    transport.json("POST", "/jobs", json={})
    transport.json("POST", "/jobs", json={})
    first, second = double.requests("POST", "jobs")
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


def test_a_body_is_sent_whole_again(double: Double, transport: Transport) -> None:
    double.on("PUT", "code/abc", Answer(503), as_json({}, 201))
    transport.request("PUT", "/code/abc", body=Body(lambda: iter([b"one ", b"two"]), 7))
    assert [request.body for request in double.requests("PUT", "code/abc")] == [b"one two", b"one two"]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_manifest", errors.InvalidManifest),
        (400, "invalid_bundle", errors.InvalidBundle),
        (401, "unauthenticated", errors.AuthenticationError),
        (403, "forbidden", errors.PermissionDenied),
        (404, "not_found", errors.NotFound),
        (409, "no_results_yet", errors.Conflict),
        (410, "results_gone", errors.Conflict),
        (500, "internal", errors.ApiError),
    ],
)
def test_a_refusal_is_not_repeated(
    double: Double, transport: Transport, status: int, code: str, kind: type[errors.ApiError]
) -> None:
    double.on("GET", "me", problem(status, code, "why"))
    with pytest.raises(errors.ApiError) as caught:
        transport.json("GET", "/me")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.status) == (code, status)
    assert "why" in caught.value.detail
    assert len(double.seen) == 1


def test_problems_keep_what_the_server_says_of_them(double: Double, transport: Transport) -> None:
    told = {"path": "learners", "message": "not a number", "line": 3, "found": "'two'", "accepted": "1 to 1024"}
    double.on("POST", "jobs", problem(400, "invalid_manifest", problems=[told]))
    with pytest.raises(errors.InvalidManifest) as caught:
        transport.json("POST", "/jobs", json={})
    (found,) = caught.value.problems
    assert vars(found) == told


def test_a_server_that_stays_away_is_named_with_the_reason() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        waits: list[float] = []
        with pytest.raises(errors.Unavailable, match=f"can't reach Weft at {url}.*refused"):
            Transport(Server(url), sleep=waits.append).json("GET", "/me")
    assert len(waits) == 4


def test_a_503_that_stays_says_what_the_server_says(double: Double, transport: Transport) -> None:
    double.on("GET", "me", problem(503, "database_unavailable", "the database does not answer"))
    with pytest.raises(errors.Unavailable, match="the database does not answer"):
        transport.json("GET", "/me")
    assert len(double.seen) == 5


def test_a_delete_whose_answer_was_lost_has_succeeded(double: Double, transport: Transport) -> None:
    double.on("DELETE", "jobs/x", DROP, problem(404, "not_found"))
    assert transport.request("DELETE", "/jobs/x").is_success


def test_a_delete_of_what_is_not_there_has_not(double: Double, transport: Transport) -> None:
    double.on("DELETE", "jobs/x", problem(404, "not_found"))
    with pytest.raises(errors.NotFound):
        transport.request("DELETE", "/jobs/x")


PAGE = b"<html><head><title>Sign in &amp; go\n on</title></head></html>"
HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(Answer(200, PAGE, HTML), "200 OK and an HTML page, 'Sign in & go on'", id="a page"),
        pytest.param(Answer(200, b"<p>", HTML), "200 OK and an HTML page.", id="a page without a title"),
        pytest.param(Answer(404, PAGE, HTML), "404 Not Found and an HTML page", id="a page that is missing"),
        pytest.param(Answer(401, PAGE, HTML), "401 Unauthorized and an HTML page", id="a proxy's own sign-in"),
        pytest.param(Answer(413, b"", {}), "413 .* and no content", id="a proxy's limit"),
        pytest.param(as_json({"hello": "world"}), "200 OK and other JSON", id="another API"),
        pytest.param(as_json(["a"]), "200 OK and other JSON", id="a list"),
        pytest.param(as_json({"detail": "Not Found"}, 404), "404 Not Found and other JSON", id="another API's refusal"),
        pytest.param(Answer(200, b"OK", {"Content-Type": "text/plain"}), "200 OK and text/plain", id="text"),
    ],
)
def test_another_server_is_told_as_that(double: Double, answer: Answer, said: str) -> None:
    double.on("GET", "jobs", answer)
    server = Server(double.url, "weft_u_test", source="profile 'default' in /here/config.toml")
    with pytest.raises(errors.NotWeft, match=f"does not answer as Weft does: GET /api/v1/jobs got {said}") as caught:
        list(Client(transport=Transport(server)).jobs.list())
    assert "Check the URL (from profile 'default' in /here/config.toml)" in str(caught.value)
    assert len(double.seen) == 1, "it will not become Weft by asking again"


def test_the_real_refusals_of_both_apis_are_wefts(double: Double, transport: Transport) -> None:
    double.on("HEAD", "code/x", Answer(404, b"", {"Content-Type": "application/problem+json"}))
    double.on("GET", "/v1/models/x", as_json({"code": 404, "error": "Not found", "description": "no"}, 404))
    for method, path, base in (("HEAD", "/code/x", "/api/v1"), ("GET", "/models/x", "/v1")):
        with pytest.raises(errors.NotFound):
            transport.request(method, path, base=base)


def test_a_proxy_that_does_not_reach_weft_is_told_as_that(double: Double, transport: Transport) -> None:
    double.on("GET", "me", Answer(502, b"<title>502 Bad Gateway</title>", HTML))
    words = (
        "a proxy in front of it, or another server, answers with 502 Bad Gateway and an HTML page, '502 Bad Gateway'"
    )
    with pytest.raises(errors.Unavailable, match=words):
        transport.json("GET", "/me")
    assert len(double.seen) == 5, "it may come back"


def listening(answer: Callable[[socket.socket], None]) -> tuple[socket.socket, str]:
    """A server that does this with each connection, and its address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                answer(connection)

    threading.Thread(target=serve, daemon=True).start()
    return server, f"127.0.0.1:{server.getsockname()[1]}"


def closed(server: socket.socket) -> None:
    """accept() in another thread ends with the shutdown only."""
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def test_tls_where_http_is_asked_for_and_the_other_way_round(double: Double, tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(self_signed(tmp_path))

    def answer(connection: socket.socket) -> None:
        with tls.wrap_socket(connection, server_side=True) as secure:
            secure.recv(1)

    server, place = listening(answer)
    try:
        with pytest.raises(errors.Unavailable, match=rf"can't reach Weft at http://{place}: the server expects TLS"):
            Transport(Server(f"http://{place}"), delays=()).json("GET", "/me")
        with pytest.raises(errors.Unavailable, match="its TLS certificate is not trusted"):
            Transport(Server(f"https://{place}"), delays=()).json("GET", "/me")
    finally:
        closed(server)
    with pytest.raises(errors.Unavailable, match=r"TLS failed.*try http:// instead of https://"):
        Transport(Server(double.url.replace("http:", "https:")), delays=()).json("GET", "/me")


def test_what_speaks_no_http_is_not_weft() -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" + b"Invalid SSH identification string.\r\n")
        connection.recv(1 << 16)

    server, place = listening(answer)
    try:
        with pytest.raises(errors.Unavailable, match=r"gave no HTTP answer \(.*\): is it Weft"):
            Transport(Server(f"http://{place}"), delays=()).json("GET", "/me")
    finally:
        closed(server)


def self_signed(folder: Path) -> Path:
    """A certificate with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(private + made.sign(key, hashes.SHA256()).public_bytes(pem))
    return folder / "server.pem"


def test_a_token_is_not_carried_along_a_redirect(double: Double, transport: Transport) -> None:
    double.on("GET", "me", Answer(307, b"", {"Location": "http://elsewhere.invalid/"}))
    with pytest.raises(errors.WeftError, match=r"redirects to http://elsewhere\.invalid/"):
        transport.json("GET", "/me")
    double.on("GET", "me", Answer(308, b"", {"Location": "https://weft.example/api/v1/me"}))
    with pytest.raises(errors.NotWeft, match=r"use https://weft\.example instead"):
        transport.json("GET", "/me")
    assert len(double.seen) == 2


def test_user_and_password_are_exchanged_for_a_token_once(double: Double) -> None:
    double.on("POST", "login", as_json({"token": "weft_u_new"}))
    double.on("GET", "me", as_json({"user": "u"}))
    transport = Transport(Server(double.url, user="ada", password="pw"))
    transport.json("GET", "/me")
    transport.json("GET", "/me")
    (login,) = double.requests("POST", "login")
    assert login.json == {"user": "ada", "password": "pw"}
    assert [request.headers["authorization"] for request in double.requests("GET", "me")] == ["Bearer weft_u_new"] * 2


def test_without_a_token_the_way_to_sign_in_is_told(double: Double) -> None:
    double.on("GET", "me", problem(401, "unauthenticated"))
    with pytest.raises(errors.AuthenticationError, match="weft login"):
        Transport(Server(double.url)).json("GET", "/me")


def test_http_proxy_is_not_asked_for_this_machine(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    double.on("GET", "me", as_json({"user": "u"}))
    assert Transport(Server(double.url, "t")).json("GET", "/me") == {"user": "u"}


def test_a_client_that_is_too_fast_waits_as_long_as_the_server_says(double: Double) -> None:
    body = problem(429, "too_many_requests")
    wait, long = (Answer(429, body.body, {**body.headers, "Retry-After": told}) for told in ("3", "300"))
    double.on("GET", "me", wait, as_json({"user": "ann"}))
    double.on("POST", "login", long)
    double.on("DELETE", "jobs/x", wait, problem(404, "not_found"))
    slept: list[float] = []
    transport = Transport(Server(double.url, "weft_u_test"), sleep=slept.append)
    assert transport.json("GET", "/me") == {"user": "ann"}
    assert slept == [3.0]
    with pytest.raises(errors.ApiError):
        transport.json("POST", "/login", json={})
    with pytest.raises(errors.NotFound):  # the first try has deleted nothing
        transport.request("DELETE", "/jobs/x")
    assert slept == [3.0, 3.0]
