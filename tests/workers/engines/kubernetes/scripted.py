"""A small API server that a test scripts: for faults that a real one can't be made to show."""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
DROP = object()
"""Put into a watch: the connection breaks."""
END = object()
"""Put into a watch: it ends in order."""


class Scripted:
    """Lists and watches of one kind of object.

    Attributes:
        objects: what a list says.
        version: the resource version of a list.
        watches: of each watch that was begun, the resource version it began with.
        lists: of each list, its query.
        refuse: HTTP status of new watches instead.
        frozen: while set, nobody gets any answer.
    """

    def __init__(self, folder: Path) -> None:
        self.objects: list[Json] = []
        self.version, self.page = "100", 0
        self.watches: list[str] = []
        self.lists: list[dict[str, str]] = []
        self.refuse = 0
        self.frozen = threading.Event()
        self._events: queue.Queue[Any] = queue.Queue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "it",
                    "clusters": [{"name": "it", "cluster": {"server": self.url}}],
                    "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
                    "users": [{"name": "me", "user": {"token": "t"}}],
                }
            )
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.frozen.clear()
        self._events.put(DROP)
        self._server.shutdown()
        self._server.server_close()

    def send(self, kind: str, found: Json) -> None:
        self._events.put(json.dumps({"type": kind, "object": found}))

    def send_line(self, line: str) -> None:
        self._events.put(line)

    def bookmark(self, version: str) -> None:
        self.send("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version}})

    def break_watch(self, how: object = DROP) -> None:
        self._events.put(how)

    @contextmanager
    def freeze(self) -> Iterator[None]:
        self.frozen.set()
        try:
            yield
        finally:
            self.frozen.clear()

    # --- how ---

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                while script.frozen.is_set():
                    time.sleep(0.02)
                query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
                if query.get("watch"):
                    self._watch(query)
                else:
                    self._list(query)

            def _list(self, query: dict[str, str]) -> None:
                script.lists.append(query)
                size = script.page or len(script.objects) or 1
                start = int(query.get("continue", 0))
                more = {"continue": str(start + size)} if start + size < len(script.objects) else {}
                answer = {
                    "kind": "PodList",
                    "metadata": {"resourceVersion": script.version, **more},
                    "items": script.objects[start : start + size],
                }
                self._answer(200, answer)

            def _answer(self, status: int, answer: Json) -> None:
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _watch(self, query: dict[str, str]) -> None:
                if status := script.refuse:
                    if status == 410:
                        script.refuse = 0
                    self._answer(status, {"kind": "Status", "code": status, "message": "no watch", "reason": "Expired"})
                    return
                self.close_connection = True
                script.watches.append(query["resourceVersion"])
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                while (event := script._events.get()) not in (DROP, END):
                    if self._is_left():
                        script._events.put(event)  # for the next watch
                        return
                    data = f"{event}\n".encode()
                    # In two pieces: lines need not come whole.
                    for piece in (data[:7], data[7:]):
                        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                        self.wfile.flush()
                if event is END:
                    self.wfile.write(b"0\r\n\r\n")

            def _is_left(self) -> bool:
                try:
                    return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return False
                except OSError:
                    return True

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        return Handler
