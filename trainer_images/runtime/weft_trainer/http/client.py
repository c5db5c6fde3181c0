"""Requests, over connections that are kept alive."""

from __future__ import annotations

import http.client
import io
import socket
import threading
import urllib.parse
from collections.abc import Mapping
from typing import BinaryIO

from weft_trainer.http.answer import STALE, Answer, Take, read_answer
from weft_trainer.http.connections import Connections
from weft_trainer.http.get import get
from weft_trainer.http.proxy import find_proxy
from weft_trainer.http.websocket import WebSocket

_CHUNK = 64 << 10
"""Bytes. The buffers of sixteen threads then stay in the processor's cache between the read and the write; with
1 MiB the kernel takes twice the time."""


class Unreachable(Exception):
    """No whole answer came."""


class Http:
    """Thread-safe. Proxies are those of the environment (``https_proxy``, ``no_proxy`` …).

    Args:
        ca: certificates (PEM) of a private authority to trust.
    """

    def __init__(self, ca: str | None = None) -> None:
        self._connections = Connections(ca)
        self._local = threading.local()

    def resolve(self, url: str) -> None:
        """Look the host's name up, unless a proxy does so. Raises: Unreachable, when it has no address."""
        parts = urllib.parse.urlsplit(url)
        if find_proxy(parts.scheme, parts.netloc) is None:
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
        """One request. A 2xx body goes to ``sink`` at its present position, or piece by piece to ``take``, if given.

        Raises:
            Unreachable: no connection, or no whole answer within ``timeout`` (of each read or write).
        """
        parts = urllib.parse.urlsplit(url)
        origin = (parts.scheme, parts.netloc)
        sent = dict(headers or {})
        if isinstance(body, io.IOBase) and "Content-Length" not in sent:
            raise ValueError("a file body needs its Content-Length")
        into = take if take is not None else sink.write if sink is not None else None
        for fresh in (False, True):
            try:
                connection, reused = self._connections.get(*origin, timeout, fresh=fresh)
            except (OSError, ValueError) as error:  # the certificates to trust can't be read
                raise Unreachable(_words(parts, error)) from error
            target = connection.prefix + _target(parts)
            sent |= connection.headers
            try:
                if method == "GET" and body is None and into is not None:
                    return get(connection.raw, target, parts.netloc, sent, self._buffer(), into)
                connection.raw.request(method, target, body=body, headers=sent)
                return read_answer(connection.raw.getresponse(), self._buffer(), into)
            except STALE as error:
                self._connections.drop(*origin)
                # The server may close an idle connection at any time: that says nothing about the server.
                if not reused or fresh:
                    raise Unreachable(_words(parts, error)) from error
                if body is not None and not isinstance(body, bytes):
                    body.seek(0)
            except (OSError, http.client.HTTPException) as error:
                self._connections.drop(*origin)
                raise Unreachable(_words(parts, error)) from error
            except BaseException:
                self._connections.drop(*origin)  # an exception of `take`: the rest of the body is still under way
                raise
        raise AssertionError("the second round returns or raises")

    def open(
        self, url: str, headers: Mapping[str, str], timeout: float
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """A GET over a connection of the caller's own. The caller reads the body and closes the connection.

        Raises:
            OSError, ValueError, http.client.HTTPException: no answer came, or the certificates to trust can't be read.
        """
        parts = urllib.parse.urlsplit(url)
        connection = self._connections.open(parts.scheme, parts.netloc, timeout)
        sent = {**headers, **connection.headers}
        connection.raw.request("GET", connection.prefix + _target(parts), headers=sent)
        return connection.raw, connection.raw.getresponse()

    def websocket(self, url: str, headers: Mapping[str, str], timeout: float) -> WebSocket:
        """Raises: Closed."""
        return WebSocket(self._connections, url, headers, timeout)

    def _buffer(self) -> memoryview:
        """This thread's."""
        found: memoryview | None = self._local.__dict__.get("buffer")
        if found is None:
            found = self._local.buffer = memoryview(bytearray(_CHUNK))
        return found


def _target(parts: urllib.parse.SplitResult) -> str:
    return parts.path + ("?" + parts.query if parts.query else "")


def _words(parts: urllib.parse.SplitResult, error: Exception) -> str:
    """The failure in words; of the URL only scheme and host, as the rest may be a presigned secret."""
    return f"{parts.scheme}://{parts.netloc}: {str(error) or type(error).__name__}"
