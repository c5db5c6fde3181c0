"""Asking a server whether it answers, with the standard library only: the supervisor stays small and starts fast."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

_PATIENCE = 30.0  # seconds: on a busy machine an answer takes its time


def http_get(url: str, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """Status and body. Raises OSError when nothing sensible answers."""
    return http_request("GET", url, tls=tls)


def http_request(
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    patience: float = _PATIENCE,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, bytes]:
    """The same of any method, without a body. ``patience`` in seconds; ``tls`` for https."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=patience, context=tls)
        if tls
        else http.client.HTTPConnection(host, parts.port, timeout=patience)
    )
    try:
        connection.request(method, parts.path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"no HTTP: {error or type(error).__name__}") from error
    finally:
        connection.close()


def redis_ping(path: Path) -> bytes:
    """The answer of a Redis at a Unix socket to PING, such as ``+PONG``. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE)
        connection.connect(str(path))
        connection.sendall(b"PING\r\n")
        return connection.recv(64).strip()
