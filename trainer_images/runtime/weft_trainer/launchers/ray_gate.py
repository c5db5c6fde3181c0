"""The gate, through which the learners of a Ray cluster exchange facts that Ray does not pass on.

Learner 1 serves it. A client sends one line, ``<token> <what> <number>``, and gets one line back:
- ``head 0``: answered once learner 1's Ray node is up;
- ``joined <rank>``: that learner's Ray node is up;
- ``ready 0``: answered once all have joined;
- ``ended <code>``: the command has ended, on learner 1; answered once that is known to be the command's own fault;
- ``end 0``: answered with the command's exit code, once it has ended.

The token is the one that Ray's own connections carry, in the same way.
"""

from __future__ import annotations

import hmac
import socket
import socketserver
import threading
import time
from collections.abc import Callable

_LONGEST = 4096
_RETRY = 0.1


class GateClosed(Exception):
    """Learner 1's helper has ended, or is not there."""


class Gate:
    """Learner 1's side. Raises OSError when the port is taken.

    Args:
        well: whether Ray's processes on learner 1 are all alive. A command that failed because they are not must not
            get the blame: it gets no answer then, and the helper that serves this gate ends with the reason.
    """

    def __init__(self, port: int, token: str, learners: int, well: Callable[[], bool]) -> None:
        self._token = token.encode()
        self._learners = learners
        self._well = well
        self._joined: set[int] = set()
        self._code: int | None = None
        self._changed = threading.Condition()
        self._server = _Server(("0.0.0.0", port), _Handler)  # noqa: S104
        self._server.gate = self
        threading.Thread(target=self._server.serve_forever, name="gate", daemon=True).start()

    @property
    def missing(self) -> list[int]:
        """Ranks that have not joined yet."""
        with self._changed:
            return self._missing()

    def _missing(self) -> list[int]:
        return sorted(set(range(self._learners)) - self._joined)

    def join(self, rank: int) -> None:
        with self._changed:
            self._joined.add(rank)
            self._changed.notify_all()

    def answer(self, line: bytes) -> bytes | None:
        """The answer to a request; None: the client has the wrong token, or needs no answer."""
        token, _, request = line.strip().partition(b" ")
        if not hmac.compare_digest(token, self._token):
            return None
        what, _, number = request.decode().partition(" ")
        if what == "joined":
            self.join(int(number))
            return b"ok"
        if what in ("head", "ready"):
            with self._changed:
                self._changed.wait_for(lambda: 0 in self._joined if what == "head" else not self._missing())
            return b"ok"
        if what == "ended":
            if int(number) != 0 and not self._well():
                return None
            with self._changed:
                self._code = int(number)
                self._changed.notify_all()
            return b"ok"
        with self._changed:
            self._changed.wait_for(lambda: self._code is not None)
            return str(self._code).encode()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    gate: Gate


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        answer = self.server.gate.answer(self.rfile.readline(_LONGEST))
        if answer is not None:
            self.wfile.write(answer + b"\n")


class GateClient:
    """The side of the other learners, and of learner 1's own command."""

    def __init__(self, address: str, port: int, token: str) -> None:
        self._place = (address, port)
        self._token = token

    def head(self) -> None:
        """Wait until learner 1's Ray node is up. Raises: GateClosed; also when the gate is not open yet."""
        self._ask("head 0")

    def joined(self, rank: int) -> None:
        """Raises: GateClosed."""
        self._ask(f"joined {rank}")

    def ready(self, checkpoint: Callable[[], None]) -> None:
        """Wait until all have joined. ``checkpoint`` is called while the gate does not answer, and may raise.

        Raises: GateClosed.
        """
        self._open(checkpoint).close()
        self._ask("ready 0")

    def ended(self, code: int) -> None:
        """Raises: GateClosed: learner 1's Ray is no more."""
        self._ask(f"ended {code}")

    def end(self, checkpoint: Callable[[], None]) -> int:
        """Wait for the command's end: its exit code. Raises: GateClosed."""
        self._open(checkpoint).close()
        return int(self._ask("end 0"))

    def _open(self, checkpoint: Callable[[], None]) -> socket.socket:
        while True:
            try:
                return self._connect()
            except OSError:
                checkpoint()
                time.sleep(_RETRY)

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self._place, timeout=10)
        connection.settimeout(None)
        # A wait may take days, for which middle boxes don't remember a silent connection.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        return connection

    def _ask(self, request: str) -> str:
        try:
            with self._connect() as connection:
                connection.sendall(f"{self._token} {request}\n".encode())
                with connection.makefile("rb") as file:
                    answer = file.readline(_LONGEST)
        except OSError as error:
            raise GateClosed(str(error)) from None
        if not answer:
            raise GateClosed("it closed the connection")
        return answer.decode().strip()
