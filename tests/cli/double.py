"""A server with scripted answers, over real sockets: the faults of a network on demand."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Seen:
    """A request that arrived."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """``cut``: after so many bytes of the body the connection is reset. ``drop``: it is reset instead of an answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    drop: bool = False


Reply = Answer | Callable[[Seen], Answer]


def as_json(value: Any, status: int = 200, **headers: str) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})


def problem(status: int, code: str, detail: str = "as told", **more: Any) -> Answer:
    body = {"type": f"urn:weft:problem:{code}", "title": code, "status": status, "detail": detail, "code": code, **more}
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/problem+json"})


def events(*sent: tuple[int | None, str, Any], cut: int | None = None, tail: bytes = b"") -> Answer:
    """Server-sent events; ``tail`` is what follows the last complete one."""
    parts = []
    for number, name, data in sent:
        number_line = f"id: {number}\n" if number is not None else ""
        parts.append(f"{number_line}event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n")
    return Answer(200, "".join(parts).encode() + tail, {"Content-Type": "text/event-stream"}, cut=cut)


DROP = Answer(drop=True)
ID = "job-4k9x2m7qd1ze"
END = (None, "end", {"state": "COMPLETED", "reason": ""})


class Double:
    """Answers by method and path; each answer once, the last of a path again and again."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._replies: dict[tuple[str, str], list[Reply]] = {}
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def _any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                url = urlsplit(self.path)
                seen = Seen(
                    self.command,
                    url.path,
                    parse_qs(url.query, keep_blank_values=True),
                    {key.lower(): value for key, value in self.headers.items()},
                    self.rfile.read(length),
                )
                outer._answer(self, seen)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _any  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def on(self, method: str, path: str, *replies: Reply) -> None:
        """Set the answers of a path (below /api/v1 when it begins with no slash)."""
        full = path if path.startswith("/") else f"/api/v1/{path}"
        with self._lock:
            self._replies[method, full] = list(replies)

    def requests(self, method: str, path: str) -> list[Seen]:
        full = path if path.startswith("/") else f"/api/v1/{path}"
        return [seen for seen in self.seen if (seen.method, seen.path) == (method, full)]

    def _answer(self, handler: BaseHTTPRequestHandler, seen: Seen) -> None:
        with self._lock:
            self.seen.append(seen)
            replies = self._replies.get((seen.method, seen.path))
            reply: Reply = problem(404, "not_found", f"the double knows no {seen.method} {seen.path}")
            if replies:
                reply = replies.pop(0) if len(replies) > 1 else replies[0]
        answer = reply(seen) if callable(reply) else reply
        if answer.drop:
            _reset(handler)
            return
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(answer.body[: answer.cut])
            handler.wfile.flush()
        if answer.cut is not None:
            # First the FIN, so that what was written arrives; a mere reset might overtake it.
            handler.connection.shutdown(socket.SHUT_WR)
            handler.close_connection = True


def _reset(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


@contextmanager
def running() -> Iterator[Double]:
    server = Double()
    try:
        yield server
    finally:
        server.stop()


def job(**changes: Any) -> dict[str, Any]:
    """A job as the server tells of it."""
    base: dict[str, Any] = {
        "id": ID,
        "name": "mnist",
        "description": "",
        "labels": {},
        "state": "PROCESSING",
        "desired": "RUNNING",
        "reason": "user code runs in 2 of 2 learners",
        "error_code": None,
        "condition": None,
        "engine": "local",
        "priority": 50,
        "framework": {"name": "horovod", "version": "0.28.1", "launcher": "horovod", "command": "python train.py"},
        "learners": 2,
        "resources": {"cpus": 1.0, "gpus": 0, "memory": 1 << 30},
        "attempt": 1,
        "retries": 2,
        "failures": 0,
        "code_sha256": None,
        "rerun_of": None,
        "project": "default",
        "user": "admin",
        "created_at": "2026-01-31T08:15:02.512345Z",
        "started_at": "2026-01-31T08:15:09.018211Z",
        "ended_at": None,
        "state_since": "2026-01-31T08:15:09.018211Z",
        "queue_position": None,
        "attempts": [],
        "manifest": {},
    }
    return base | changes


def jobs_page(*jobs: dict[str, Any]) -> Answer:
    """A list of jobs, with no page after it."""
    return as_json({"jobs": list(jobs), "next_cursor": None})


def job_event(number: int, state: str | None, message: str, kind: str = "state") -> tuple[int, str, dict[str, Any]]:
    """An entry of a job's history, as its stream of events sends it."""
    event: dict[str, Any] = {
        "id": number,
        "at": None,
        "kind": kind,
        "state": state,
        "attempt": 1,
        "message": message,
        "data": {},
    }
    return number, "event", event


def line(n: int, text: str | None = None, learner: int = 1, attempt: int = 1) -> dict[str, Any]:
    return {"n": n, "t": 1769847309018 + n, "attempt": attempt, "learner": learner, "text": text or f"line {n}"}


def line_events(numbers: Iterable[int]) -> list[tuple[int | None, str, Any]]:
    return [(n, "line", line(n)) for n in numbers]
