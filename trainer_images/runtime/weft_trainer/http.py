"""HTTP over connections that are kept alive, one for each thread and host: a call costs one round trip."""

from __future__ import annotations

import http.client
import io
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

_CHUNK = 1 << 20
_GONE_STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


class Unreachable(Exception):
    """No whole answer came."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Http:
    """Thread-safe."""

    def __init__(self) -> None:
        self._local = threading.local()

    def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | BinaryIO | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        sink: BinaryIO | None = None,
    ) -> Answer:
        """One request. A 2xx body goes to ``sink`` when there is one, at its present position.

        Raises:
            Unreachable: no connection, or no whole answer within ``timeout`` (of each read or write).
        """
        parts = urllib.parse.urlsplit(url)
        target = parts.path + ("?" + parts.query if parts.query else "")
        origin = (parts.scheme, parts.netloc)
        sent = dict(headers or {})
        if isinstance(body, io.IOBase) and "Content-Length" not in sent:
            raise ValueError("a file body needs its Content-Length")
        for fresh in (False, True):
            connection, reused = self._connection(origin, timeout, fresh=fresh)
            try:
                return self._exchange(connection, method, target, body, sent, sink)
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
        raise AssertionError("the second round returns or raises")

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | BinaryIO | None,
        headers: Mapping[str, str],
        sink: BinaryIO | None,
    ) -> Answer:
        connection.request(method, target, body=body, headers=dict(headers))
        response = connection.getresponse()
        if sink is not None and 200 <= response.status < 300:
            while chunk := response.read(_CHUNK):
                sink.write(chunk)
            return Answer(response.status, dict(response.headers), b"")
        return Answer(response.status, dict(response.headers), response.read())

    def _connection(
        self, origin: tuple[str, str], timeout: float, *, fresh: bool
    ) -> tuple[http.client.HTTPConnection, bool]:
        pool: dict[tuple[str, str], http.client.HTTPConnection] = self._local.__dict__.setdefault("pool", {})
        found = pool.get(origin)
        if found is not None and not fresh and found.sock is not None:
            found.sock.settimeout(timeout)
            return found, True
        scheme, netloc = origin
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        pool[origin] = connection = kind(netloc, timeout=timeout)
        return connection, False

    def _drop(self, origin: tuple[str, str]) -> None:
        connection = self._local.__dict__.get("pool", {}).pop(origin, None)
        if connection is not None:
            connection.close()


def _words(parts: urllib.parse.SplitResult, error: Exception) -> str:
    """The failure in words; of the URL only scheme and host, as the rest may be a presigned secret."""
    return f"{parts.scheme}://{parts.netloc}: {str(error) or type(error).__name__}"
