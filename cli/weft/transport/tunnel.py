"""A tunnel into a learner: a WebSocket to the server, which passes frames on to the learner's agent and back."""

from __future__ import annotations

import contextlib
import json
import struct
import threading
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from weft.errors import TunnelBroken
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


def connect(server: Server, path: str, headers: Mapping[str, str]) -> ClientConnection:
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
            open_timeout=_OPEN_SECONDS,
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

    Args:
        opening: the request to the agent.
    """

    def __init__(self, socket: ClientConnection, opening: Mapping[str, Any]) -> None:
        self._socket = socket
        self._room = WINDOW
        self._changed = threading.Condition()
        self._over = False
        self._taken = 0
        self.tell(Frame.OPEN, dict(opening))

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[Frame, bytes]]:
        """The frames with data and DONE, until the agent's last word, which ``end`` returns then.

        Raises:
            TunnelBroken: the tunnel ended without one.
        """
        try:
            while True:
                message = self._receive()
                if not message or message[0] not in Frame.__members__.values():
                    continue  # from a newer agent
                frame, data = Frame(message[0]), message[1:]
                if frame is Frame.TAKEN:
                    with self._changed:
                        self._room += struct.unpack("!I", data)[0]
                        self._changed.notify_all()
                elif frame is Frame.END:
                    self.end = json.loads(data)
                    return
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
            if not self._send(bytes((Frame.INPUT,)) + piece):
                return False
        return True

    def tell(self, frame: Frame, message: Any = None) -> bool:
        """Send a frame that is no data."""
        return self._send(bytes((frame,)) + (b"" if message is None else json.dumps(message).encode()))

    def close(self) -> None:
        """Close the tunnel, which ends the command in it."""
        with contextlib.suppress(Exception):
            self._socket.close_timeout = 1
            self._socket.close()

    def _took(self, size: int) -> None:
        self._taken += size
        if self._taken >= _ACKNOWLEDGE:
            taken, self._taken = self._taken, 0
            self._send(bytes((Frame.TAKEN,)) + struct.pack("!I", taken))

    def _send(self, message: bytes) -> bool:
        from websockets.exceptions import ConnectionClosed

        try:
            self._socket.send(message)
        except (ConnectionClosed, OSError):
            return False  # the next receive raises the reason
        return True

    def _receive(self) -> bytes:
        from websockets.exceptions import ConnectionClosed

        try:
            message = self._socket.recv(decode=False)
        except ConnectionClosed as error:
            told = error.rcvd.reason if error.rcvd is not None else ""
            if error.rcvd is not None and error.rcvd.code == 1012:
                told = "the server is being stopped"
            raise TunnelBroken(f"the tunnel broke: {told or 'the connection to the server was lost'}") from None
        except OSError as error:
            raise TunnelBroken(f"the tunnel broke: {error}") from None
        return message if isinstance(message, bytes) else message.encode()
