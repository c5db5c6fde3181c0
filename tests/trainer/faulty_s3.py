"""A proxy of a real S3 that a test can disturb: every request passes, or meets a fault that the test has set."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    """With the query."""
    range: str = ""

    @property
    def is_object_read(self) -> bool:
        return self.method == "GET" and "list-type=2" not in self.path


@dataclass(frozen=True)
class Fault:
    """What becomes of a request instead of passing: an answer of its own, or a spoiled one."""

    status: int = 0
    """Answered so, and not passed on."""
    keep: int | None = None
    """So many bytes of the body, then the connection ends."""
    pause: float = 0.0
    """Seconds between pieces of the body."""
    lost: bool = False
    """Passed on; the answer is lost."""


@dataclass
class FaultyS3:
    """``url`` takes the place of the endpoint; signatures are of the host name, which is handed on as it came."""

    upstream: str
    rule: Callable[[Request], Fault | None] = lambda request: None
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def serving(self, tls: ssl.SSLContext | None = None) -> Iterator[FaultyS3]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    @property
    def reads(self) -> list[Request]:
        """GETs of objects."""
        return [request for request in self.requests if request.is_object_read]


def times(
    count: int, fault: Fault, which: Callable[[Request], bool] = lambda request: True
) -> Callable[[Request], Fault | None]:
    """A rule: the first ``count`` requests that are meant meet the fault."""
    left = [count]
    lock = threading.Lock()

    def rule(request: Request) -> Fault | None:
        with lock:
            if left[0] and which(request):
                left[0] -= 1
                return fault
        return None

    return rule


def _handler(proxy: FaultyS3) -> type[BaseHTTPRequestHandler]:
    upstream = urlsplit(proxy.upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            request = Request(self.command, self.path, self.headers.get("Range", ""))
            proxy.requests.append(request)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.rule(request)
            if fault and fault.status:
                self.send_response(fault.status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            connection = http.client.HTTPConnection(upstream, timeout=300)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            if fault and fault.lost:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(data)))
            self.end_headers()
            if fault and fault.keep is not None:
                self.wfile.write(data[: fault.keep])
                self.close_connection = True
            elif fault and fault.pause:
                for start in range(0, len(data), 1 << 16):
                    self.wfile.write(data[start : start + (1 << 16)])
                    time.sleep(fault.pause)
            else:
                self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler
