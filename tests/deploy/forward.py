"""Ways from the cluster's pods to servers of this machine that listen elsewhere, and back to a pod from here."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

Target = tuple[str, int] | Path  # a path is a unix socket's


class Forward:
    """Passes on what comes to a port; the target may change meanwhile."""

    def __init__(self, host: str, target: Target | None = None) -> None:
        self.target = target
        self._listener = socket.create_server((host, 0), backlog=256)
        self.host, self.port = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def close(self) -> None:
        # Without the shutdown a thread that waits in accept would not notice.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except OSError:
                client.close()
                continue
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()

    def _connect(self) -> socket.socket:
        if self.target is None:
            raise OSError("no target yet")
        if isinstance(self.target, Path):
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self.target))
            return server
        return socket.create_connection(self.target, timeout=None)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def forward(host: str, target: Target | None = None) -> Iterator[Forward]:
    opened = Forward(host, target)
    try:
        yield opened
    finally:
        opened.close()
