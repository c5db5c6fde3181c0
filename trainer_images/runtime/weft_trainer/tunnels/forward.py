"""A connection to a port of the learner."""

from __future__ import annotations

import contextlib
import socket
import threading

from weft_trainer.http import Closed
from weft_trainer.tunnels.stream import PIECE, Frame, Stream

_CONNECT_SECONDS = 10.0


class Forward:
    """Passes bytes between a tunnel and a port, which a process of the learner listens at.

    Raises:
        OSError: nothing listens there.
    """

    def __init__(self, stream: Stream, port: int) -> None:
        self._stream = stream
        self._socket = socket.create_connection(("localhost", port), timeout=_CONNECT_SECONDS)
        self._socket.settimeout(None)
        self._enough = threading.Event()
        """The client has no more data, or has gone."""

    def run(self) -> str | None:
        """Until both sides have said that they are done, or one has gone. Returns an error, if it was one."""
        threading.Thread(target=self._take, name="tunnel-input", daemon=True).start()
        try:
            while data := self._socket.recv(PIECE):
                self._stream.write(Frame.OUTPUT, data)
            self._stream.tell(Frame.DONE)
            self._enough.wait()
        except Closed:
            pass
        except OSError as error:
            return f"the connection to the port broke: {error.strerror or error}"
        finally:
            self.stop()
            self._socket.close()
        return None

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _take(self) -> None:
        try:
            while True:
                frame, data = self._stream.receive()
                if frame is Frame.DONE:
                    self._enough.set()
                    self._socket.shutdown(socket.SHUT_WR)
                elif frame is Frame.INPUT:
                    self._socket.sendall(data)
                    self._stream.took(len(data))
        except (Closed, OSError):
            self._enough.set()
            self.stop()
