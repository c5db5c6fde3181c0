"""A tunnel into a learner: a WebSocket to the server, which passes frames on to the learner's agent and back."""

from __future__ import annotations

import contextlib
import json
import secrets
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from weft.errors import TunnelBroken, Unavailable, WeftError
from weft.profile import Server
from weft.transport.answers import is_wefts, not_now, not_weft, read_error, redirected, unreachable

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

WINDOW = 2 << 20
"""Bytes of data that each side may send before the other one has said that it has taken them."""
PIECE = 65_535
"""Bytes of data in a frame."""
_ACKNOWLEDGE = WINDOW // 4
_OPEN_SECONDS = 60.0
"""The server waits up to 30 s for the learner's agent."""
_SILENT_SECONDS = 120.0
"""Without an answer to a ping, after which the server is taken for lost."""
_RESUME_SECONDS = 60.0
"""In which a connection that broke must be back; the agent waits as long."""
_LEARNER_SECONDS = 15.0
"""The same, if the server is there and the learner has gone: an agent that lives is back sooner."""
_PAUSE_SECONDS = 0.5
_FINAL = (1000, 1003, 1008, 4001)
"""Close codes after which a tunnel is over: done, a fault of the protocol, a right that has ended, a limit."""
_LEARNER_GONE = 4000
_HERE = ("localhost", "127.0.0.1", "::1")


class Frame(IntEnum):
    """The first byte of a message (docs/into-a-job.md)."""

    OPEN = 0
    INPUT = 1
    OUTPUT = 2
    ERRORS = 3
    DONE = 4
    END = 5
    RESIZE = 6
    SIGNAL = 7
    TAKEN = 8
    RESUMED = 9


Connect = Callable[[float], "ClientConnection"]
"""Opens a connection within seconds. Raises: Unavailable, ApiError, NotWeft."""


def connect(server: Server, path: str, headers: Mapping[str, str], seconds: float) -> ClientConnection:
    """Raises: Unavailable, ApiError, NotWeft."""
    from websockets.exceptions import InvalidStatus, WebSocketException
    from websockets.sync.client import connect as open_socket

    parts = urlsplit(server.url)
    secure = parts.scheme.lower() == "https"
    url = server.url.replace(parts.scheme, "wss" if secure else "ws", 1) + path
    try:
        connecting = open_socket(
            url,
            ssl=httpx.create_ssl_context() if secure else None,
            additional_headers=dict(headers),
            compression=None,
            proxy=None if parts.hostname in _HERE else True,
            open_timeout=seconds,
            max_size=1 << 20,
            ping_timeout=_SILENT_SECONDS,
            max_queue=None,  # the window is the limit
        )
        return connecting.__enter__()  # newer versions connect here; `close` of the connection is their `__exit__`
    except InvalidStatus as error:
        raise _refusal(server, path, error) from None
    except (OSError, WebSocketException) as error:
        raise unreachable(server.url, error) from error


def _refusal(server: Server, path: str, error: Any) -> Exception:
    told = error.response
    response = httpx.Response(
        told.status_code,
        headers=list(told.headers.raw_items()),
        content=bytes(told.body or b""),
        request=httpx.Request("GET", server.url + path),
    )
    if 300 <= response.status_code < 400:
        return redirected(server.url, response)
    if response.status_code in (502, 503, 504):
        return not_now(server.url, response)
    return read_error(response, server) if is_wefts(response) else not_weft(server, response)


class Tunnel:
    """One thread iterates over the frames; others may send. Also a context manager.

    When its connection breaks, a tunnel goes on over another one, without a gap: each side keeps what the other one has
    not taken yet.

    Args:
        opening: the request to the agent.
    """

    resume_seconds = _RESUME_SECONDS
    """In which a connection that broke must be back. 0: the tunnel ends with its connection."""

    def __init__(self, connection: Connect, opening: Mapping[str, Any]) -> None:
        self.watch: Callable[[str | None], None] = lambda reason: None
        """Called with the reason when the connection breaks, and with None when it is back."""
        self._connect = connection
        self._key = secrets.token_urlsafe(24)
        self._sending = threading.Lock()  # the order of what is kept is the order of what is sent
        self._changed = threading.Condition()
        self._over = False
        self._closing = False
        self._room = WINDOW
        self._kept: deque[tuple[Frame, bytes]] = deque()
        self._kept_from = 0  # bytes of data sent before what is kept
        self._sent = 0
        self._confirmed = 0  # bytes of data that the agent has taken
        self._received = 0
        self._taken = 0
        self._untold = 0  # of these, those that the agent does not know of
        self._socket = connection(_OPEN_SECONDS)
        self.tell(Frame.OPEN, {**opening, "key": self._key})

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[Frame, bytes]]:
        """The frames with data and DONE, until the agent's last word, which ``end`` returns then.

        Raises:
            TunnelBroken: the tunnel ended without one.
        """
        done = False
        try:
            while True:
                message = self._receive()
                if not message or message[0] not in Frame.__members__.values():
                    continue  # from a newer agent
                frame, data = Frame(message[0]), message[1:]
                if frame is Frame.TAKEN:
                    with self._changed:
                        self._confirm(self._confirmed + struct.unpack("!I", data)[0])
                elif frame is Frame.END:
                    self.end = json.loads(data)
                    return
                elif frame is Frame.DONE:
                    if not done:  # it comes once more after a break
                        yield frame, data
                    done = True
                else:
                    yield frame, data
                    if frame in (Frame.OUTPUT, Frame.ERRORS):
                        self._took(len(data))
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    end: Mapping[str, Any] = {}
    """The agent's last word: ``exit_code`` or ``error``."""

    def check(self) -> None:
        """Raises TunnelBroken if the agent's last word was an error."""
        if error := self.end.get("error"):
            raise TunnelBroken(str(error))

    def write(self, data: bytes) -> bool:
        """Send data, as soon as there is room for it. Returns whether the other side may still take more."""
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            with self._changed:
                self._changed.wait_for(lambda: self._room > 0 or self._over)
                if self._over:
                    return False
                self._room -= len(piece)
            self._keep(Frame.INPUT, piece)
        return True

    def tell(self, frame: Frame, message: Any = None) -> bool:
        """Send a frame that is no data. Returns whether the other side may still take more.

        A signal or a new size that is sent while the connection is broken is lost."""
        content = b"" if message is None else json.dumps(message).encode()
        if frame is Frame.DONE:
            self._keep(frame, content)
        else:
            with self._sending:
                self._send(frame, content)
        return not self._over

    def close(self) -> None:
        """Close the tunnel, which ends the command in it."""
        self._closing = True
        with contextlib.suppress(Exception):
            self._socket.close_timeout = 1
            self._socket.close()

    def _took(self, size: int) -> None:
        with self._sending:
            self._taken += size
            self._untold += size
            if self._untold >= _ACKNOWLEDGE:
                told, self._untold = self._untold, 0
                self._send(Frame.TAKEN, struct.pack("!I", told))

    def _keep(self, frame: Frame, data: bytes) -> None:
        with self._sending:
            with self._changed:
                self._kept.append((frame, data))
                self._sent += len(data)
            self._send(frame, data)

    def _send(self, frame: Frame, data: bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        with contextlib.suppress(ConnectionClosed, OSError):  # the next receive finds out
            self._socket.send(bytes((frame,)) + data)

    def _confirm(self, taken: int) -> None:
        """The agent has taken this much. DONE stays, as nothing confirms it."""
        self._room += taken - self._confirmed
        self._confirmed = taken
        while self._kept and 0 < len(self._kept[0][1]) <= taken - self._kept_from:
            self._kept_from += len(self._kept.popleft()[1])
        self._changed.notify_all()

    def _receive(self) -> bytes:
        from websockets.exceptions import ConnectionClosed

        while True:
            code: int | None = None
            try:
                message = self._socket.recv(decode=False)
            except ConnectionClosed as error:
                code = error.rcvd.code if error.rcvd is not None else None
                reason = error.rcvd.reason if error.rcvd is not None else ""
                if code == 1012:
                    reason = "the server is being stopped"
                reason = reason or "the connection to the server was lost"
            except OSError as error:
                reason = str(error)
            else:
                data = message if isinstance(message, bytes) else message.encode()
                if data and data[0] in (Frame.OUTPUT, Frame.ERRORS):
                    self._received += len(data) - 1
                return data
            seconds = min(self.resume_seconds, _LEARNER_SECONDS) if code == _LEARNER_GONE else self.resume_seconds
            if self._closing or code in _FINAL or not self._resume(reason, seconds):
                raise TunnelBroken(f"the tunnel broke: {reason}")

    def _resume(self, reason: str, seconds: float) -> bool:
        """Go on over another connection. Returns False if there is none, or the agent has given the tunnel up."""
        deadline = time.monotonic() + seconds
        if seconds:
            self.watch(reason)
        while not self._closing and (left := deadline - time.monotonic()) > 0:
            try:
                resumed = self._resumed(self._connect(left))
                if resumed:
                    self.watch(None)
                return resumed
            except Unavailable:
                time.sleep(min(_PAUSE_SECONDS, left))
            except WeftError:  # the job has ended, the right is gone
                return False
        return False

    def _resumed(self, socket: ClientConnection) -> bool:
        """Whether the agent goes on over this connection. Raises: Unavailable."""
        from websockets.exceptions import ConnectionClosed

        def send(frame: Frame, data: bytes) -> None:
            socket.send(bytes((frame,)) + data)

        try:
            with self._sending:
                asked = {"resume": self._key, "received": self._received, "taken": self._taken}
                send(Frame.OPEN, json.dumps(asked).encode())
                answer = socket.recv(_OPEN_SECONDS, decode=False)
                if not answer or answer[0] != Frame.RESUMED or self._closing:
                    socket.close()
                    return False
                there = json.loads(answer[1:])
                self._untold = 0
                with self._changed:
                    self._confirm(there["taken"])
                    left, start = list(self._kept), self._kept_from
                self._socket = socket
                for frame, data in left:
                    if start >= there["received"]:
                        send(frame, data)
                    start += len(data)
        except (ConnectionClosed, OSError) as error:  # TimeoutError is one
            socket.close()
            raise Unavailable(str(error)) from error
        return True
