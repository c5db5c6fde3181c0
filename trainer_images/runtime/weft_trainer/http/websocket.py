"""A client's WebSocket (RFC 6455), binary messages only: enough for a tunnel to a learner, without a library.

Every side of a tunnel reads at all times (a window limits what is under way), so a write never waits for ever.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import os
import select
import socket
import ssl
import struct
import threading
import urllib.parse
from collections.abc import Mapping

from weft_trainer.http.connections import Connections

_READ = 256 << 10
_LONGEST = 1 << 20
"""Bytes of a message that are accepted."""
_HEADERS = 64 << 10
_CONTINUATION, _BINARY, _CLOSE, _PING = 0x0, 0x2, 0x8, 0x9
_PONG = 0xA
_NO_CODE = 1005
_FINAL, _MASKED = 0x80, 0x80


class Closed(Exception):
    """The connection is over, or there never was one. The text says why.

    Attributes:
        code: of the server's close frame; None: the connection broke.
    """

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


class WebSocket:
    """One thread may receive while others send.

    Args:
        url: http or https.
        timeout: seconds until the connection must be there; later, of silence. The server sends pings more often.

    Raises:
        Closed: no connection, or the server refused.
    """

    def __init__(self, connections: Connections, url: str, headers: Mapping[str, str], timeout: float) -> None:
        parts = urllib.parse.urlsplit(url)
        self._timeout = timeout
        self._sending = threading.Lock()  # of a whole message
        self._using = threading.Lock()  # of the socket: OpenSSL can't be used by two threads at once
        self._buffer = bytearray()
        self._pieces = bytearray()
        try:
            self._connection = connections.open(parts.scheme, parts.netloc, timeout, through=True).raw
            self._connection.connect()
            self._socket = self._connection.sock
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._shake_hands(parts, headers)
            self._socket.setblocking(False)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Closed(f"{parts.scheme}://{parts.netloc}: {str(error) or type(error).__name__}") from error

    def send(self, *parts: bytes) -> None:
        """Send one binary message. Raises: Closed."""
        self._send(_BINARY, b"".join(parts))

    def receive(self) -> bytes:
        """The next message. Raises: Closed."""
        while True:
            code, final, payload = self._frame()
            if code == _PING:
                self._send(_PONG, payload)
            elif code == _CLOSE:
                with contextlib.suppress(Closed):
                    self._send(_CLOSE, payload[:2])
                code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else _NO_CODE
                raise Closed(payload[2:].decode(errors="replace") or "the other side has closed the connection", code)
            elif code in (_BINARY, _CONTINUATION):
                if final and not self._pieces:
                    return payload
                self._pieces += payload
                if len(self._pieces) > _LONGEST:
                    raise Closed("a message is too long")
                if final:
                    whole = bytes(self._pieces)
                    self._pieces.clear()
                    return whole

    def close(self) -> None:
        """Send a close frame and close, without waiting for an answer."""
        with contextlib.suppress(Closed):
            self._send(_CLOSE, struct.pack("!H", 1000))
        self.abort()
        self._connection.close()

    def abort(self) -> None:
        """Break the connection. Threads that send or receive get Closed."""
        with self._using, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _shake_hands(self, parts: urllib.parse.SplitResult, headers: Mapping[str, str]) -> None:
        target = parts.path + ("?" + parts.query if parts.query else "")
        sent = {
            "Host": parts.netloc,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
            **headers,
        }
        lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
        self._socket.sendall("\r\n".join(lines).encode("latin-1"))
        while b"\r\n\r\n" not in self._buffer:
            self._read_some()
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        self._buffer = bytearray(rest)
        status, _, lines_left = head.partition(b"\r\n")
        told = http.client.parse_headers(io.BytesIO(lines_left + b"\r\n\r\n"))
        if status.split(b" ", 2)[1:2] != [b"101"]:
            raise Closed(self._refusal(status, told.get("Content-Length", "0")))

    def _refusal(self, status: bytes, length: str) -> str:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            while len(self._buffer) < int(length):
                self._read_some()
            return str(json.loads(bytes(self._buffer))["detail"])
        return status.decode(errors="replace")

    def _read_some(self) -> None:
        """While the socket still blocks."""
        data = self._socket.recv(_READ)
        if not data:
            raise ConnectionResetError("the connection was closed")
        self._buffer += data
        if len(self._buffer) > _HEADERS:
            raise ValueError("the answer is no WebSocket's")

    def _frame(self) -> tuple[int, bool, bytes]:
        first, second = self._take(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", self._take(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._take(8))
        if size > _LONGEST or second & _MASKED:
            raise Closed("the server has sent an invalid WebSocket frame")
        return first & 0x0F, bool(first & _FINAL), self._take(size)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            try:
                with self._using:
                    data = self._socket.recv(_READ)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(select.POLLIN)
                continue
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)
                continue
            except (OSError, ValueError) as error:
                raise Closed(str(error)) from error
            if not data:
                raise Closed("the connection was closed")
            self._buffer += data
        taken = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return taken

    def _send(self, code: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", _FINAL | code, _MASKED | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", _FINAL | code, _MASKED | 126, size)
        else:
            head = struct.pack("!BBQ", _FINAL | code, _MASKED | 127, size)
        key = os.urandom(4)
        with self._sending:
            left = memoryview(head + key + _mask(payload, key))
            while left:
                try:
                    with self._using:
                        left = left[self._socket.send(left) :]
                except (BlockingIOError, ssl.SSLWantWriteError):
                    self._wait(select.POLLOUT)
                except ssl.SSLWantReadError:
                    self._wait(select.POLLIN)
                except (OSError, ValueError) as error:
                    raise Closed(str(error)) from error

    def _wait(self, what: int) -> None:
        poll = select.poll()
        try:
            poll.register(self._socket, what)
            if not poll.poll(self._timeout * 1000):
                raise Closed(f"no sign of life for {self._timeout:g} s")
        except (OSError, ValueError) as error:  # closed by another thread
            raise Closed(str(error)) from error


def _mask(payload: bytes, key: bytes) -> bytes:
    """Whole numbers are the one way in which Python XORs many bytes at once."""
    size = len(payload)
    pattern = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(pattern, "little")).to_bytes(size, "little")
