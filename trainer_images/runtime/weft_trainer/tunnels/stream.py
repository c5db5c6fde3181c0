"""The protocol of a tunnel, between the client and the agent (docs/into-a-job.md). The API passes it on unread."""

from __future__ import annotations

import contextlib
import json
import struct
import threading
from collections import deque
from enum import IntEnum
from typing import Any

from weft_trainer.http import Closed, WebSocket

WINDOW = 2 << 20
"""Bytes of data that each side may send before the other one has said that it has taken them."""
PIECE = 65_535
"""Bytes of data in a frame."""
_ACKNOWLEDGE = WINDOW // 4
_RESUMABLE = 60.0
"""Seconds for the client to come back after the connection broke."""
_FINAL = (1000, 1003, 1008, 4001)
"""Close codes after which it does not come back: it is done, broke the protocol, lost its right, or met a limit."""


class Frame(IntEnum):
    """The first byte of a message."""

    OPEN = 0  # JSON from the client: its request
    INPUT = 1  # data from the client
    OUTPUT = 2  # data from the learner
    ERRORS = 3  # data from the command's standard error
    DONE = 4  # the sender has no more data
    END = 5  # JSON, the agent's last word: {"exit_code": …} or {"error": …}
    RESIZE = 6  # JSON: [rows, columns]
    SIGNAL = 7  # JSON: "INT"
    TAKEN = 8  # four bytes: how many bytes of data the sender has taken
    RESUMED = 9  # JSON, the answer to an OPEN that resumes: {"received": …, "taken": …}


class Stream:
    """One side's end of a tunnel. Any thread may send, and those that receive take turns.

    The window keeps the connection itself from filling up, so that pings come through however slowly the other side
    reads. What the window holds is kept until the other side has taken it: a tunnel whose connection broke goes on
    over another one, without a gap.
    """

    def __init__(self, socket: WebSocket) -> None:
        self.resumable = False
        """Whether the client said that it comes back over another connection."""
        self._socket = socket
        self._receiving = threading.Lock()
        self._sending = threading.Lock()  # the order of what is kept is the order of what is sent
        self._changed = threading.Condition()
        self._closed = False
        self._room = WINDOW
        self._kept: deque[tuple[Frame, bytes]] = deque()
        self._kept_from = 0  # bytes of data sent before what is kept
        self._sent = 0
        self._confirmed = 0  # bytes of data that the other side has taken
        self._received = 0
        self._taken = 0
        self._untold = 0  # of these, those that the other side does not know of

    def receive(self) -> tuple[Frame, bytes]:
        """The next frame that is not about the window. Raises: Closed."""
        while True:
            try:
                with self._receiving:
                    socket = self._socket
                    message = socket.receive()
                    if message and message[0] == Frame.INPUT:
                        self._received += len(message) - 1
            except Closed as error:
                if self._comes_back(socket, error):
                    continue
                raise
            if not message or message[0] not in Frame.__members__.values():
                continue  # from a newer client
            frame, data = Frame(message[0]), message[1:]
            if frame is not Frame.TAKEN:
                return frame, data
            (size,) = struct.unpack("!I", data[:4].rjust(4, b"\0"))
            with self._changed:
                self._confirm(self._confirmed + size)

    def write(self, frame: Frame, data: bytes) -> None:
        """Send data, as soon as there is room for it. Raises: Closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._room > 0 or self._closed)
            if self._closed:
                raise Closed("the tunnel is closed")
            self._room -= len(data)
        self._keep(frame, data)

    def took(self, size: int) -> None:
        """Note that this many bytes of data have been taken. Raises: Closed."""
        with self._sending:
            self._taken += size
            self._untold += size
            if self._untold >= _ACKNOWLEDGE:
                told, self._untold = self._untold, 0
                self._send(Frame.TAKEN, struct.pack("!I", told))

    def tell(self, frame: Frame, message: Any = None) -> None:
        """Send a frame that is no data. Raises: Closed."""
        self._keep(frame, b"" if message is None else json.dumps(message).encode())

    def finish(self, **last: Any) -> None:
        """Send the last frame, and close when the other side has: closing first might lose frames that are under
        way, however long a slow reader takes. The API ends a tunnel that is idle or whose client has gone."""
        with contextlib.suppress(Closed):
            self.tell(Frame.END, last)
            while True:
                self.receive()
        self._socket.close()

    def resume(self, socket: WebSocket, received: int, taken: int) -> bool:
        """Go on over another connection, from where the client is; returns False if the tunnel is over.

        Args:
            received: bytes of data that the client has got.
            taken: of these, the bytes that it has taken.
        """
        with self._changed:
            if self._closed or not self._confirmed <= taken <= received <= self._sent:
                return False
            broken = self._socket
        broken.abort()  # the client may notice before the agent does
        with self._sending, self._receiving:
            with self._changed:
                if self._closed:
                    return False
                self._confirm(taken)
                self._socket = socket
                left, start = list(self._kept), self._kept_from
                self._changed.notify_all()
            self._untold = 0
            told = {"received": self._received, "taken": self._taken}
            self._send(Frame.RESUMED, json.dumps(told).encode())
            for frame, data in left:
                if start >= received:
                    self._send(frame, data)
                start += _data(frame, data)
        broken.close()
        return True

    def _keep(self, frame: Frame, data: bytes) -> None:
        with self._sending:
            with self._changed:
                self._kept.append((frame, data))
                self._sent += _data(frame, data)
            self._send(frame, data)

    def _send(self, frame: Frame, data: bytes) -> None:
        try:
            self._socket.send(bytes((frame,)), data)
        except Closed:
            with self._changed:
                if self._closed or not self.resumable:
                    raise

    def _confirm(self, taken: int) -> None:
        """The other side has taken this much. Frames without data stay, as nothing confirms them."""
        self._room += taken - self._confirmed
        self._confirmed = taken
        while self._kept and 0 < _data(*self._kept[0]) <= taken - self._kept_from:
            self._kept_from += len(self._kept.popleft()[1])
        self._changed.notify_all()

    def _comes_back(self, broken: WebSocket, error: Closed) -> bool:
        """Wait for another connection. If there is none, the tunnel is over."""
        with self._changed:
            if self.resumable and error.code not in _FINAL:
                self._changed.wait_for(lambda: self._socket is not broken or self._closed, _RESUMABLE)
            if self._socket is broken:
                self._closed = True
                self._changed.notify_all()
            return not self._closed


def _data(frame: Frame, data: bytes) -> int:
    """The bytes of data in a frame."""
    return len(data) if frame in (Frame.OUTPUT, Frame.ERRORS) else 0
