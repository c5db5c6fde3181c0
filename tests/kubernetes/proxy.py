"""A proxy of the API server that reports when a pod has been created, before its creator gets the answer.

Real requests to the real server, through `kubectl proxy`; a test kills the creator in between.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from tests.kubernetes.cluster import Cluster

_CREATION = re.compile(rb"POST /api/v1/namespaces/[^/ ]+/pods[ ?]")


class Proxy:
    """Passes bytes on to ``kubectl proxy``.

    ``on_created`` is called with how many pods have been created through it, while the answer to the last of them is
    held back; it may take its time.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.created = 0
        self.on_created: Callable[[int], None] = lambda number: None
        self._kubectl = cluster.proxy()
        self._target = ("127.0.0.1", _port(self._kubectl))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        named = {"name": "proxy"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "clusters": [{**named, "cluster": {"server": url}}],
            "users": [{**named, "user": {}}],
            "contexts": [{**named, "context": {"cluster": "proxy", "user": "proxy"}}],
        }
        self.kubeconfig = folder / "proxy.kubeconfig"
        self.kubeconfig.write_text(json.dumps(config))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self._kubectl.kill()
        self._kubectl.wait()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One connection; its requests come one after the other."""
        creating = threading.Event()
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            threading.Thread(target=self._requests, args=(client, server, creating), daemon=True).start()
            while data := server.recv(65536):
                if creating.is_set():
                    creating.clear()
                    if data.startswith(b"HTTP/1.1 201"):
                        with self._lock:
                            self.created += 1
                            self.on_created(self.created)
                client.sendall(data)

    @staticmethod
    def _requests(client: socket.socket, server: socket.socket, creating: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if _CREATION.match(data):
                    creating.set()
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)


def _port(kubectl: subprocess.Popen[str]) -> int:
    """Where `kubectl proxy` serves, as it says first."""
    assert kubectl.stdout is not None
    said = kubectl.stdout.readline()
    found = re.search(r":(\d+)\s*$", said)
    assert found, f"kubectl proxy said {said!r}"
    return int(found[1])
