"""Answers that a good identity provider never sends: wrong ID tokens, misleading metadata, endless answers."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from weft_api.http.problems import Problem
from weft_api.sessions import oidc
from weft_api.sessions.oidc import Person, Provider
from weft_core.oidc_settings import OidcSettings
from weft_core.outgoing import Outgoing

CLIENT = "weft"


class Faulty:
    """A provider that answers as its attributes say. Its ID tokens are good until ``claims`` changes them."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.signs_with: RSAKey | OctKey = self.key
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "one"}
        self.metadata: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.token: dict[str, Any] = {}
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.nonce = ""

    def page(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if path in self.pages:
            return self.pages[path]
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "/.well-known/openid-configuration": self._metadata,
            "/keys": lambda: {"keys": [self.key.as_dict(private=False)]},
            "/token": lambda: {
                "access_token": "at",
                "token_type": "Bearer",
                "id_token": self._id_token(),
                **self.token,
            },
            "/me": lambda: {"sub": "ada", "groups": ["ml"], "preferred_username": "ada"},
        }
        return 200, {}, json.dumps(answers[path]()).encode()

    def _metadata(self) -> dict[str, Any]:
        ends = {"authorization_endpoint": "auth", "token_endpoint": "token", "jwks_uri": "keys"}
        found = {"issuer": self.issuer} | {name: f"{self.issuer}/{path}" for name, path in ends.items()}
        return {name: value for name, value in (found | self.metadata).items() if value is not None}

    def _id_token(self) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": "ada", "iat": now, "exp": now + 600, "nonce": self.nonce}
        claims |= {"groups": ["ml"], "preferred_username": "ada"} | self.claims
        kept = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(self.header, kept, self.signs_with, algorithms=[self.header["alg"]])


@pytest.fixture
def faulty() -> Iterator[Faulty]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, body = made.page(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the name is the library's

        def log_message(self, *args: Any, **kwargs: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = Faulty(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()


@pytest.fixture
def provider(faulty: Faulty) -> Provider:
    settings = OidcSettings(issuer=faulty.issuer, client_id=CLIENT)
    door = Outgoing([], own=[faulty.issuer], seconds=60, most_bytes=1 << 20)
    return Provider("faulty", settings, "https://weft.example.com/signin/faulty", door)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign_in(provider: Provider, faulty: Faulty) -> Person:
    _, begun = provider.begin()
    faulty.nonce = begun.nonce
    return provider.finish(begun, "a code", None)


def test_without_a_fault_the_person_is_signed_in(provider: Provider, faulty: Faulty) -> None:
    person = sign_in(provider, faulty)
    assert person == Person(faulty.issuer, "ada", "ada", None, frozenset({"ml"}))


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example.com"},
        {"iss": None},
        {"aud": "another-client"},
        {"aud": ["weft", "another-client"], "azp": "another-client"},
        {"aud": None},
        {"exp": 1},
        {"exp": None},
        {"iat": 1 << 40},
        {"nbf": 1 << 40},
        {"nonce": "another"},
        {"nonce": None},
        {"sub": None},
        {"sub": 7},
        {"sub": ""},
        {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
    ],
    ids=str,
)
def test_an_id_token_with_a_wrong_claim_is_refused(provider: Provider, faulty: Faulty, claims: dict[str, Any]) -> None:
    faulty.claims = claims
    with pytest.raises(Problem) as caught:
        sign_in(provider, faulty)
    assert caught.value.kind.code == "unauthenticated"


def test_an_id_token_with_another_signature_is_refused(provider: Provider, faulty: Faulty) -> None:
    for header, key in (
        ({"alg": "RS256", "kid": "one"}, RSAKey.generate_key(2048)),
        ({"alg": "RS256", "kid": "two"}, RSAKey.generate_key(2048)),
        ({"alg": "HS256", "kid": "one"}, OctKey.import_key("a secret that the client may have")),
    ):
        faulty.header, faulty.signs_with = header, key
        with pytest.raises(Problem) as caught:
            sign_in(provider, faulty)
        assert caught.value.kind.code == "unauthenticated", header


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_an_id_token_that_anybody_can_make_is_refused(provider: Provider, faulty: Faulty, algorithm: str) -> None:
    """Not signed, or signed with the public key as if it were a secret."""
    header = _base64(json.dumps({"alg": algorithm, "kid": "one"}).encode())
    signed = f"{header}.{faulty._id_token().split('.')[1]}"
    by_public_key = hmac.digest(faulty.key.as_pem(private=False), signed.encode(), "sha256")
    faulty.token = {"id_token": f"{signed}.{_base64(by_public_key) if algorithm == 'HS256' else ''}"}
    with pytest.raises(Problem) as caught:
        sign_in(provider, faulty)
    assert caught.value.kind.code == "unauthenticated"


def test_a_provider_may_change_its_keys(provider: Provider, faulty: Faulty) -> None:
    sign_in(provider, faulty)
    faulty.key = faulty.signs_with = RSAKey.generate_key(2048, {"kid": "two"})
    faulty.header = {"alg": "RS256", "kid": "two"}
    assert sign_in(provider, faulty).subject == "ada"


def test_the_user_info_of_somebody_else_is_refused(provider: Provider, faulty: Faulty) -> None:
    faulty.metadata = {"userinfo_endpoint": f"{faulty.issuer}/me"}
    faulty.claims = {"groups": None}
    assert sign_in(provider, faulty).groups == {"ml"}
    faulty.claims = {"groups": None, "sub": "eve"}
    with pytest.raises(Problem) as caught:
        sign_in(provider, faulty)
    assert caught.value.kind.code == "unauthenticated"


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example.com"},
        {"issuer": None},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"token_endpoint": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"token_endpoint": "http://127.0.0.1:9/token"},
        {"token_endpoint": "http://169.254.169.254/latest/meta-data"},
        {"jwks_uri": "https://10.0.0.1/keys"},
    ],
    ids=str,
)
def test_metadata_lead_nowhere_else(provider: Provider, faulty: Faulty, metadata: dict[str, Any]) -> None:
    faulty.metadata = metadata
    with pytest.raises(Problem) as caught:
        sign_in(provider, faulty)
    assert caught.value.kind.code == "provider_unavailable"


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys", "/token"])
@pytest.mark.parametrize(
    "page",
    [
        (302, {"Location": "http://127.0.0.1:9/"}, b""),
        (200, {}, b"<html>"),
        (200, {}, b"[]"),
        (200, {}, b"{}"),
        (200, {}, b"[" * 100_000),
        (200, {}, b"\xff\xfe"),
        (200, {}, b" " * (2 << 20)),
        (500, {}, b"{}"),
        (429, {}, b"slow down"),
    ],
    ids=lambda page: f"{page[0]} {page[2][:10]!r} {len(page[2])}",
)
def test_an_answer_of_another_form_is_no_error_of_the_servers(
    provider: Provider, faulty: Faulty, path: str, page: tuple[int, dict[str, str], bytes]
) -> None:
    faulty.pages[path] = page
    with pytest.raises(Problem) as caught:
        sign_in(provider, faulty)
    assert caught.value.kind.code == "provider_unavailable"
    assert "127.0.0.1" not in caught.value.text


@pytest.mark.parametrize("keys", [b'{"keys": 7}', b'{"keys": [7]}', b'{"keys": [{"kty": "RSA"}]}', b'{"keys": []}'])
def test_keys_that_are_none_are_no_error_of_the_servers(provider: Provider, faulty: Faulty, keys: bytes) -> None:
    faulty.pages["/keys"] = (200, {}, keys)
    with pytest.raises(Problem) as caught:
        sign_in(provider, faulty)
    assert caught.value.kind.code == "provider_unavailable"


def test_a_provider_that_hangs_does_not_hold_all_threads(
    provider: Provider, faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_SLOTS", threading.BoundedSemaphore(1))
    asked, answer = threading.Event(), threading.Event()
    page = faulty.page

    def hang(path: str) -> tuple[int, dict[str, str], bytes]:
        asked.set()
        answer.wait(60)
        return page(path)

    monkeypatch.setattr(faulty, "page", hang)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(provider.begin)
        assert asked.wait(300)
        with pytest.raises(Problem) as caught:
            provider.begin()
        assert caught.value.kind.code == "too_many_sign_ins"
        answer.set()
        assert first.result()[0].startswith(faulty.issuer)
