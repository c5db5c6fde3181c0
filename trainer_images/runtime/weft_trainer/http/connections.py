"""Connections to hosts, direct or through a proxy: each thread keeps its own."""

from __future__ import annotations

import http.client
import os
import ssl
import threading
from collections.abc import Mapping
from typing import NamedTuple

from weft_trainer.http.answer import Response
from weft_trainer.http.proxy import find_proxy, proxy_headers


class Connection(NamedTuple):
    raw: http.client.HTTPConnection
    prefix: str = ""
    """Put before each request's target: a proxy of plain HTTP takes whole URLs."""
    headers: Mapping[str, str] = {}
    """Sent with each request, for a proxy of plain HTTP."""


class Connections:
    """Thread-safe.

    Args:
        ca: certificates (PEM) of a private authority to trust.
    """

    def __init__(self, ca: str | None) -> None:
        self._local = threading.local()
        self._ca = ca
        self._tls: ssl.SSLContext | None = None
        self._tls_lock = threading.Lock()

    def get(self, scheme: str, netloc: str, timeout: float, *, fresh: bool) -> tuple[Connection, bool]:
        """This thread's connection to a host, and whether it has been used before; with ``fresh`` a new one.

        Raises:
            OSError, ValueError: the certificates to trust can't be read.
        """
        pool: dict[tuple[str, str], Connection] = self._local.__dict__.setdefault("pool", {})
        found = pool.get((scheme, netloc))
        if found is not None and not fresh and found.raw.sock is not None:
            if found.raw.sock.gettimeout() != timeout:  # setting it is a system call
                found.raw.sock.settimeout(timeout)
            return found, True
        pool[scheme, netloc] = connection = self.open(scheme, netloc, timeout)
        return connection, False

    def drop(self, scheme: str, netloc: str) -> None:
        """Close this thread's connection to a host."""
        connection = self._local.__dict__.get("pool", {}).pop((scheme, netloc), None)
        if connection is not None:
            connection.raw.close()

    def open(self, scheme: str, netloc: str, timeout: float, *, through: bool = False) -> Connection:
        """A connection of the caller's own.

        Args:
            through: have a proxy of plain HTTP pass bytes on, too, instead of requests.

        Raises:
            OSError, ValueError: as :meth:`get`.
        """
        proxy = find_proxy(scheme, netloc)
        place = proxy.netloc.rpartition("@")[2] if proxy else netloc
        if scheme != "https":
            plain = http.client.HTTPConnection(place, timeout=timeout)
            plain.response_class = Response
            if proxy and through:
                plain.set_tunnel(netloc, headers=proxy_headers(proxy))
                return Connection(plain)
            return Connection(plain, f"http://{netloc}", proxy_headers(proxy)) if proxy else Connection(plain)
        secure = http.client.HTTPSConnection(place, timeout=timeout, context=self._context())
        secure.response_class = Response
        if proxy:
            secure.set_tunnel(netloc, headers=proxy_headers(proxy))
        return Connection(secure)

    def _context(self) -> ssl.SSLContext:
        with self._tls_lock:
            if self._tls is None:
                self._tls = _trusted(self._ca)  # some milliseconds, so once
            return self._tls


def _trusted(ca: str | None) -> ssl.SSLContext:
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
