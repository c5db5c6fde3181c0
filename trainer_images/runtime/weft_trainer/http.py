"""HTTP over connections that are kept alive, one for each thread and host: a call costs one round trip."""

from __future__ import annotations

import base64
import http.client
import io
import os
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

_CHUNK = 64 << 10
"""Bytes. The buffers of sixteen threads then stay in the processor's cache between the read and the write; with
1 MiB the kernel takes twice the time."""
_MOST_HEADERS = 200
_LONGEST_LINE = 65536
_GONE_STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)

Take = Callable[[memoryview], object]
"""What is done with a piece of a body; the memory is used again afterwards."""


class Unreachable(Exception):
    """No whole answer came."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes


def trusted(ca: str | None) -> ssl.SSLContext:
    """The system's certificates, those of the usual environment variables, and ``ca`` (PEM) for a private authority.

    Raises:
        ValueError: ``ca`` is no PEM.
    """
    context = ssl.create_default_context()
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # OpenSSL itself knows SSL_CERT_FILE
        if (path := os.environ.get(name)) and os.path.exists(path):
            context.load_verify_locations(**{"capath" if os.path.isdir(path) else "cafile": path})
    if ca:
        try:
            context.load_verify_locations(cadata=ca)
        except ssl.SSLError as error:
            raise ValueError(f"the CA certificate is no PEM: {error}") from None
    return context


class _Headers:
    """As much of a response's headers as http.client and we ask for."""

    def __init__(self, lines: list[bytes]) -> None:
        self.found: dict[str, str] = {}
        for line in lines:
            name, _, value = line.decode("iso-8859-1").partition(":")
            self.found.setdefault(name.strip().lower(), value.strip())

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.found.get(name.lower(), default)


class _Response(http.client.HTTPResponse):
    """http.client's parser of headers is that of mail, and takes a third of all the time that a small object costs."""

    def begin(self) -> None:
        if self.headers is not None:  # type: ignore[redundant-expr, unused-ignore]
            return
        while True:
            version, status, reason = self._read_status()
            headers = _Headers(list(self._lines()))
            if status != http.client.CONTINUE:
                break
        self.code = self.status = status
        self.reason = reason.strip()
        self.version = 10 if version in ("HTTP/1.0", "HTTP/0.9") else 11
        self.headers = self.msg = headers
        self.chunked = (headers.get("transfer-encoding") or "").lower() == "chunked"
        self.chunk_left: int | None = None
        closing = (headers.get("connection") or "").lower()
        self.will_close = "close" in closing or (self.version == 10 and "keep-alive" not in closing)
        length = headers.get("content-length") or ""
        self.length = int(length) if length.isdecimal() and not self.chunked else None
        bodiless = status in (http.client.NO_CONTENT, http.client.NOT_MODIFIED) or self._method == "HEAD"
        if bodiless:
            self.length = 0
        if not self.will_close and not self.chunked and self.length is None:
            self.will_close = True

    def _lines(self) -> Iterator[bytes]:
        for _ in range(_MOST_HEADERS):
            line = self.fp.readline(_LONGEST_LINE + 1)
            if len(line) > _LONGEST_LINE:
                raise http.client.LineTooLong("header line")
            if line in (b"\r\n", b"\n", b""):
                return
            yield line
        raise http.client.HTTPException(f"more than {_MOST_HEADERS} headers")

    def getheaders(self) -> list[tuple[str, str]]:
        return list(self.headers.found.items())  # type: ignore[attr-defined]


class Http:
    """Thread-safe. Proxies are those of the environment (``https_proxy``, ``no_proxy`` …)."""

    def __init__(self, ca: str | None = None) -> None:
        self._local = threading.local()
        self._ca = ca
        self._tls: ssl.SSLContext | None = None
        self._tls_lock = threading.Lock()

    def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | BinaryIO | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        sink: BinaryIO | None = None,
        take: Take | None = None,
    ) -> Answer:
        """One request. A 2xx body goes to ``sink`` at its present position, or piece by piece to ``take``, when there
        is one.

        Raises:
            Unreachable: no connection, or no whole answer within ``timeout`` (of each read or write).
        """
        parts = urllib.parse.urlsplit(url)
        target = parts.path + ("?" + parts.query if parts.query else "")
        origin = (parts.scheme, parts.netloc)
        sent = dict(headers or {})
        if isinstance(body, io.IOBase) and "Content-Length" not in sent:
            raise ValueError("a file body needs its Content-Length")
        into = take if take is not None else sink.write if sink is not None else None
        for fresh in (False, True):
            try:
                connection, reused = self._connection(origin, timeout, fresh=fresh)
            except (OSError, ValueError) as error:  # the certificates that were to be trusted
                raise Unreachable(_words(parts, error)) from error
            prefix, added = getattr(connection, "through", ("", {}))
            try:
                return self._exchange(connection, method, prefix + target, body, sent | added, into)
            except _GONE_STALE as error:
                self._drop(origin)
                # The server may close an idle connection at any time: that says nothing about the server.
                if not reused or fresh:
                    raise Unreachable(_words(parts, error)) from error
                if body is not None and not isinstance(body, bytes):
                    body.seek(0)
            except (OSError, http.client.HTTPException) as error:
                self._drop(origin)
                raise Unreachable(_words(parts, error)) from error
            except BaseException:
                self._drop(origin)  # what `take` raised: the rest of the body is still under way
                raise
        raise AssertionError("the second round returns or raises")

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | BinaryIO | None,
        headers: Mapping[str, str],
        into: Take | None,
    ) -> Answer:
        connection.request(method, target, body=body, headers=dict(headers))
        response = connection.getresponse()
        found = dict(response.getheaders())
        if into is None or not 200 <= response.status < 300:
            return Answer(response.status, found, response.read())
        expected = response.length
        buffer = memoryview(bytearray(min(_CHUNK, expected or _CHUNK)))
        came = 0
        while count := _read(response, buffer):
            into(buffer[:count])
            came += count
        # http.client's readinto, unlike its read, takes the end of the connection for the end of the body.
        if expected is not None and came != expected:
            raise http.client.IncompleteRead(b"", expected - came)
        return Answer(response.status, found, b"")

    def _connection(
        self, origin: tuple[str, str], timeout: float, *, fresh: bool
    ) -> tuple[http.client.HTTPConnection, bool]:
        pool: dict[tuple[str, str], http.client.HTTPConnection] = self._local.__dict__.setdefault("pool", {})
        found = pool.get(origin)
        if found is not None and not fresh and found.sock is not None:
            found.sock.settimeout(timeout)
            return found, True
        pool[origin] = connection = self._open(*origin, timeout)
        return connection, False

    def connect(self, url: str, timeout: float) -> http.client.HTTPConnection:
        """A connection of the caller's own. If it has ``through``, those are what is to be put before each target, and
        headers to add: there is a proxy.

        Raises:
            OSError, ValueError: the certificates to trust can't be read.
        """
        parts = urllib.parse.urlsplit(url)
        return self._open(parts.scheme, parts.netloc, timeout)

    def _open(self, scheme: str, netloc: str, timeout: float) -> http.client.HTTPConnection:
        proxy = _proxy(scheme, netloc)
        place = proxy.netloc.rpartition("@")[2] if proxy else netloc
        if scheme != "https":
            connection = http.client.HTTPConnection(place, timeout=timeout)
            connection.response_class = _Response
            if proxy:
                connection.through = (f"http://{netloc}", _proxy_headers(proxy))  # type: ignore[attr-defined]
            return connection
        secure = http.client.HTTPSConnection(place, timeout=timeout, context=self._context())
        secure.response_class = _Response
        if proxy:
            secure.set_tunnel(netloc, headers=_proxy_headers(proxy))
        return secure

    def _context(self) -> ssl.SSLContext:
        with self._tls_lock:
            if self._tls is None:
                self._tls = trusted(self._ca)  # some milliseconds, so once
            return self._tls

    def _drop(self, origin: tuple[str, str]) -> None:
        connection = self._local.__dict__.get("pool", {}).pop(origin, None)
        if connection is not None:
            connection.close()


def _read(response: http.client.HTTPResponse, buffer: memoryview) -> int:
    try:
        return response.readinto(buffer)
    except _GONE_STALE as error:  # it has begun to answer, so it was not the connection that was stale
        raise http.client.IncompleteRead(b"") from error


def _proxy(scheme: str, netloc: str) -> urllib.parse.SplitResult | None:
    proxies = urllib.request.getproxies_environment()
    if scheme not in proxies or urllib.request.proxy_bypass(netloc):
        return None
    url = proxies[scheme]
    return urllib.parse.urlsplit(url if "//" in url else f"//{url}")


def _proxy_headers(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{urllib.parse.unquote(proxy.username)}:{urllib.parse.unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _words(parts: urllib.parse.SplitResult, error: Exception) -> str:
    """The failure in words; of the URL only scheme and host, as the rest may be a presigned secret."""
    return f"{parts.scheme}://{parts.netloc}: {str(error) or type(error).__name__}"
