"""A way to a server on which connections can be broken: it passes bytes on, whatever they say."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

_PIECE = 64 * 1024


class Relay:
    """Listens at ``url``, and connects to the server at ``upstream``."""

    def __init__(self, upstream: str) -> None:
        self.lead_to(upstream)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def lead_to(self, upstream: str) -> None:
        """Lead new connections to another server."""
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "", parts.port or 80)

    def cut(self) -> None:
        """Break all connections."""
        with self._lock:
            there = list(self._open)
        for connection in there:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), name="relay", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._upstream, 30) as server:
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            back = threading.Thread(target=_pass_on, args=(server, client), name="relay", daemon=True)
            back.start()
            _pass_on(client, server)
            back.join()
            with self._lock:
                self._open -= {client, server}


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Until either side has gone; then break both."""
    with suppress(OSError):
        while data := source.recv(_PIECE):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
