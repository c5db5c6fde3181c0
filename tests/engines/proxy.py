"""A way between an engine and its server that a test can spoil: HTTP in the clear on the engine's side.

One request a connection, so that it can cut, delay and count single requests.
"""

from __future__ import annotations

import re
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

_BUFFER = 64 * 1024
_HEADERS = b"Content-Type: text/html\r\nContent-Length: 21\r\nConnection: close\r\n\r\n<html>log in!</html>\n"
_NONSENSE = b"HTTP/1.1 200 OK\r\n" + _HEADERS
_BROKEN = b"HTTP/1.1 503 Service Unavailable\r\n" + _HEADERS


class Way(Enum):
    """What becomes of requests."""

    OPEN = "passes"
    REFUSED = "nobody listens"
    SILENT = "is taken and never answered"
    CUT = "is cut off without an answer"
    BROKEN = "is answered with 503"
    NONSENSE = "is answered with a login page"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    at: float = field(default_factory=time.monotonic)

    @property
    def changes(self) -> bool:
        return self.method not in ("GET", "HEAD", "OPTIONS")


@dataclass
class Trap:
    """For the ``nth`` request (from 1) that changes something: ``sprung`` when it came, ``release`` lets it go on."""

    nth: int
    before: bool  # held before the server has it; else its answer is held, which the server has given
    sprung: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Listens on ``url``; ``upstream`` is the server's URL, ``tls`` how to speak to an https one."""

    def __init__(self, upstream: str, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        self._tls = tls
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._way = Way.OPEN
        self._trap: Trap | None = None
        self._changing = 0
        self._cut_after: int | None = None
        self.requests: list[Request] = []
        self._listener = self._listen(0)
        self._port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    # --- what tests do ---

    @contextmanager
    def spoiled(self, way: Way) -> Iterator[None]:
        """Meanwhile every request, also one under way, goes ``way``."""
        self._go(way)
        try:
            yield
        finally:
            self._go(Way.OPEN)

    @contextmanager
    def held(self, nth: int, *, before: bool) -> Iterator[Trap]:
        """Hold the ``nth`` changing request from now on, or its answer."""
        trap = Trap(nth, before)
        with self._lock:
            self._trap, self._changing = trap, 0
        try:
            yield trap
        finally:
            self._trap = None
            trap.release.set()

    @contextmanager
    def cut_after(self, changes: int) -> Iterator[None]:
        """So many changing requests pass; then the server can't be reached any more."""
        with self._lock:
            self._cut_after, self._changing = changes, 0
        try:
            yield
        finally:
            self._cut_after = None
            self._go(Way.OPEN)

    def cut_streams(self) -> None:
        """End all connections that are open now."""
        with self._lock:
            there = list(self._open)
        for connection in there:
            _end(connection)

    @contextmanager
    def counted(self) -> Iterator[list[Request]]:
        """The requests that come meanwhile, in a list that is filled at the end."""
        start, found = len(self.requests), list[Request]()
        yield found
        found += self.requests[start:]

    def close(self) -> None:
        self._go(Way.REFUSED)

    # --- how ---

    def _go(self, way: Way) -> None:
        if way is self._way:
            return
        before, self._way = self._way, way
        if way is Way.REFUSED:
            _end(self._listener)
        elif before is Way.REFUSED:
            self._listener = self._listen(self._port)
        self.cut_streams()

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), backlog=128)
        threading.Thread(target=self._accept, args=(listener,), name="proxy", daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._talk, args=(client,), name="proxy", daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with self._tracked(client), suppress(OSError, ValueError):
            head, body = _read_request(client)
            method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
            request = Request(method, path)
            self.requests.append(request)
            trap = self._note(request)
            match self._way:
                case Way.SILENT:
                    client.recv(1)  # until somebody closes
                case Way.BROKEN:
                    client.sendall(_BROKEN)
                case Way.NONSENSE:
                    client.sendall(_NONSENSE)
                case Way.OPEN:
                    self._forward(client, head, body, trap)

    def _note(self, request: Request) -> Trap | None:
        """Count a changing request; the trap, if it is the one to hold."""
        if not request.changes:
            return None
        with self._lock:
            self._changing += 1
            trap = self._trap if self._trap and self._trap.nth == self._changing else None
            over = self._cut_after is not None and self._changing > self._cut_after
        if over:
            self._go(Way.REFUSED)
        return trap

    def _forward(self, client: socket.socket, head: bytes, body: bytes, trap: Trap | None) -> None:
        if trap and trap.before:
            trap.sprung.set()
            trap.release.wait()
        head = re.sub(rb"(?im)^(connection|host):[^\n]*\r\n", b"", head)
        start, rest = head.split(b"\r\n", 1)
        host = ":".join(map(str, self._upstream)).encode()
        with self._connect() as server, self._tracked(server):
            server.sendall(start + b"\r\nHost: " + host + b"\r\nConnection: close\r\n" + rest + body)
            while data := _answer(server, client):
                if trap and not trap.before and not trap.sprung.is_set():
                    trap.sprung.set()
                    trap.release.wait()
                client.sendall(data)

    def _connect(self) -> socket.socket:
        raw = socket.create_connection(self._upstream, 30)
        raw.settimeout(None)
        return self._tls.wrap_socket(raw, server_hostname=self._upstream[0]) if self._tls else raw

    @contextmanager
    def _tracked(self, end: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open.add(end)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(end)
            _end(end)


def _answer(server: socket.socket, client: socket.socket) -> bytes:
    """The next piece of the server's answer; empty: it is over, or nobody waits for it any more."""
    if not (isinstance(server, ssl.SSLSocket) and server.pending()):
        with selectors.DefaultSelector() as either:
            either.register(server, selectors.EVENT_READ)
            either.register(client, selectors.EVENT_READ)
            if any(key.fileobj is client for key, _ in either.select()):
                return b""
    return server.recv(_BUFFER)


def _read_request(client: socket.socket) -> tuple[bytes, bytes]:
    """Head (with its empty line) and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(client)
    head, body = data.split(b"\r\n\r\n", 1)
    length = re.search(rb"(?im)^content-length: *(\d+)", head)
    while length and len(body) < int(length[1]):
        body += _some(client)
    return head + b"\r\n\r\n", body


def _some(client: socket.socket) -> bytes:
    data = client.recv(_BUFFER)
    if not data:
        raise ConnectionResetError("closed before the request was whole")
    return data


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it
    end.close()
