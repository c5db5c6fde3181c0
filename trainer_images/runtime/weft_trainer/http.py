"""HTTP over connections that are kept alive, one for each thread and host: a call costs one round trip."""

from __future__ import annotations

import base64
import http.client
import io
import os
import socket
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

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
            if line in (b"\r\n", b"\n"):
                return
            if not line:
                raise http.client.IncompleteRead(b"")
            yield line
        raise http.client.HTTPException(f"more than {_MOST_HEADERS} headers")

    def getheaders(self) -> list[tuple[str, str]]:
        return list(self.headers.found.items())  # type: ignore[attr-defined]


class _Begun(io.RawIOBase):
    """A connection of which something has been read already, in a socket's place for http.client."""

    def __init__(self, begun: bytes, sock: socket.socket) -> None:
        self._begun = begun
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._begun:
            return self._sock.recv_into(buffer)
        count = min(len(buffer), len(self._begun))
        buffer[:count], self._begun = self._begun[:count], self._begun[count:]
        return count

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)


def _plain(head: bytes) -> dict[str, str] | None:
    """The headers of a response (without the empty line) that holds no surprise: 200 or 206, a body of known length,
    the connection kept. Of any other it is http.client's to say what it means."""
    first, *lines = head.split(b"\r\n")
    if not first.startswith((b"HTTP/1.1 200", b"HTTP/1.1 206")) or len(lines) > _MOST_HEADERS:
        return None
    if b"\n" in b"".join(lines) or any(line[:1].isspace() or b":" not in line for line in lines):
        return None
    found = _Headers(lines).found
    length = found.get("content-length", "")
    unusual = "transfer-encoding" in found or found.get("connection", "keep-alive").lower() != "keep-alive"
    twice = len(found) != len(lines)
    return None if unusual or twice or not (length.isascii() and length.isdecimal()) else found


class Http:
    """Thread-safe. Proxies are those of the environment (``https_proxy``, ``no_proxy`` …)."""

    def __init__(self, ca: str | None = None) -> None:
        self._local = threading.local()
        self._ca = ca
        self._tls: ssl.SSLContext | None = None
        self._tls_lock = threading.Lock()

    def resolve(self, url: str) -> None:
        """Look the host's name up, unless a proxy does so. Raises: Unreachable, when it has no address."""
        parts = urllib.parse.urlsplit(url)
        if _proxy(parts.scheme, parts.netloc) is None:
            try:
                socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
            except (OSError, ValueError) as error:
                raise Unreachable(_words(parts, error)) from error

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
                if method == "GET" and body is None and into is not None:
                    return self._get(connection, prefix + target, parts.netloc, sent | added, into)
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
        return self._received(connection.getresponse(), into)

    def _received(self, response: http.client.HTTPResponse, into: Take | None) -> Answer:
        found = dict(response.getheaders())
        if into is None or not 200 <= response.status < 300:
            return Answer(response.status, found, response.read())
        expected = response.length
        buffer = self._buffer()
        came = 0
        while count := _read(response, buffer):
            into(buffer[:count])
            came += count
        # http.client's readinto, unlike its read, takes the end of the connection for the end of the body.
        if expected is not None and came != expected:
            raise http.client.IncompleteRead(b"", expected - came)
        return Answer(response.status, found, b"")

    def _get(
        self,
        connection: http.client.HTTPConnection,
        target: str,
        netloc: str,
        headers: Mapping[str, str],
        into: Take,
    ) -> Answer:
        """A GET without http.client, which takes more time than all else that a small object costs. An answer that is
        not of the plain kind goes to http.client after all, from its first byte on."""
        request = _request(target, netloc, headers)
        if connection.sock is None:
            connection.connect()
        sock: socket.socket = connection.sock
        sock.sendall(request)
        buffer = self._buffer()
        filled = sock.recv_into(buffer)
        if not filled:
            raise http.client.RemoteDisconnected("the connection ended without an answer")
        begun = bytes(buffer[:filled])
        end = begun.find(b"\r\n\r\n")
        found = _plain(begun[:end]) if end >= 0 else None
        if found is None:
            response = _Response(_Begun(begun, sock), method="GET")  # type: ignore[arg-type]
            try:
                response.begin()
                answer = self._received(response, into)
            except _GONE_STALE as error:  # it has begun to answer, so it was not the connection that was stale
                raise http.client.IncompleteRead(b"") from error
            if response.will_close:
                connection.close()
            return answer
        left = int(found["content-length"]) - (filled - end - 4)
        if left < 0:
            raise http.client.HTTPException("the answer is longer than it says")
        if filled > end + 4:
            into(buffer[end + 4 : filled])
        while left:
            left -= _pass_on(sock, buffer[: min(left, len(buffer))], into)
        return Answer(int(begun[9:12]), found, b"")

    def _buffer(self) -> memoryview:
        """This thread's."""
        found: memoryview | None = self._local.__dict__.get("buffer")
        if found is None:
            found = self._local.buffer = memoryview(bytearray(_CHUNK))
        return found

    def _connection(
        self, origin: tuple[str, str], timeout: float, *, fresh: bool
    ) -> tuple[http.client.HTTPConnection, bool]:
        pool: dict[tuple[str, str], http.client.HTTPConnection] = self._local.__dict__.setdefault("pool", {})
        found = pool.get(origin)
        if found is not None and not fresh and found.sock is not None:
            if found.sock.gettimeout() != timeout:  # setting it is a system call
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


def _request(target: str, netloc: str, headers: Mapping[str, str]) -> bytes:
    """A GET, by what http.client adds to it."""
    host = {} if any(name.lower() == "host" for name in headers) else {"Host": netloc.rpartition("@")[2]}
    lines = [f"{name}: {value}" for name, value in {**host, **headers, "Accept-Encoding": "identity"}.items()]
    if " " in target or not all(line.isprintable() for line in (target, *lines)):
        raise http.client.InvalidURL("a control character or blank where none may be")
    return "\r\n".join([f"GET {target} HTTP/1.1", *lines, "", ""]).encode("latin-1")


def _pass_on(sock: socket.socket, buffer: memoryview, into: Take) -> int:
    """Fill the buffer, or as much of it as comes; to `into` goes whatever did come, also before a break."""
    filled = 0
    try:
        while filled < len(buffer):
            count = sock.recv_into(buffer[filled:])
            if not count:
                raise http.client.IncompleteRead(b"", len(buffer) - filled)
            filled += count
    except _GONE_STALE as error:
        raise http.client.IncompleteRead(b"", len(buffer) - filled) from error
    finally:
        if filled:
            into(buffer[:filled])
    return filled


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
