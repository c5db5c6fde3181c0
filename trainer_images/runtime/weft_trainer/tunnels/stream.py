"""The protocol of a tunnel, between the client and the agent (docs/into-a-job.md). The API passes it on unread."""

from __future__ import annotations

import contextlib
import json
import struct
import threading
from enum import IntEnum
from typing import Any

from weft_trainer.http import Closed, WebSocket

WINDOW = 2 << 20
"""Bytes of data that each side may send before the other one has said that it has taken them."""
PIECE = 65_535
"""Bytes of data in a frame."""
_ACKNOWLEDGE = WINDOW // 4


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


class Stream:
    """One side's end of a tunnel. Any thread may send, and those that receive take turns.

    The window keeps the connection itself from filling up, so that pings come through however slowly the other side
    reads.
    """

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._receiving = threading.Lock()
        self._room = WINDOW
        self._changed = threading.Condition()
        self._closed = False
        self._taken = 0

    def receive(self) -> tuple[Frame, bytes]:
        """The next frame that is not about the window. Raises: Closed."""
        try:
            while True:
                with self._receiving:
                    message = self._socket.receive()
                if not message or message[0] not in Frame.__members__.values():
                    continue  # from a newer client
                frame, data = Frame(message[0]), message[1:]
                if frame is not Frame.TAKEN:
                    return frame, data
                (size,) = struct.unpack("!I", data[:4].rjust(4, b"\0"))
                with self._changed:
                    self._room += size
                    self._changed.notify_all()
        except Closed:
            self._break()
            raise

    def write(self, frame: Frame, data: bytes) -> None:
        """Send data, as soon as there is room for it. Raises: Closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._room > 0 or self._closed)
            if self._closed:
                raise Closed("the tunnel is closed")
            self._room -= len(data)
        self._socket.send(bytes((frame,)), data)

    def took(self, size: int) -> None:
        """Note that this many bytes of data have been taken. Called by one thread. Raises: Closed."""
        self._taken += size
        if self._taken >= _ACKNOWLEDGE:
            taken, self._taken = self._taken, 0
            self._socket.send(bytes((Frame.TAKEN,)), struct.pack("!I", taken))

    def tell(self, frame: Frame, message: Any = None) -> None:
        """Send a frame that is no data. Raises: Closed."""
        self._socket.send(bytes((frame,)), b"" if message is None else json.dumps(message).encode())

    def finish(self, **last: Any) -> None:
        """Send the last frame, and close when the other side has: closing first might lose frames that are under
        way, however long a slow reader takes. The API ends a tunnel that is idle or whose client has gone."""
        with contextlib.suppress(Closed):
            self.tell(Frame.END, last)
            while True:
                self.receive()
        self._socket.close()

    def _break(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
