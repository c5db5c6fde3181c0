"""How long a tunnel whose connection broke waits for its client."""

from __future__ import annotations

import json
from typing import cast

import pytest

from weft_trainer.http import Closed, WebSocket
from weft_trainer.tunnels import stream as module
from weft_trainer.tunnels.stream import PIECE, WINDOW, Frame, Stream


class Socket:
    """A connection that is over when all messages have been received."""

    def __init__(self, *messages: bytes, code: int | None = None) -> None:
        self._messages = list(messages)
        self._code = code
        self.sent: list[tuple[Frame, bytes]] = []
        self.broken = False

    def receive(self) -> bytes:
        if not self._messages:
            raise Closed("over", self._code)
        return self._messages.pop(0)

    def send(self, *parts: bytes) -> None:
        if self.broken:
            raise Closed("over", self._code)
        message = b"".join(parts)
        self.sent.append((Frame(message[0]), message[1:]))

    def abort(self) -> None:
        self.broken = True

    close = abort


def stream_of(socket: Socket, *, resumable: bool = True) -> Stream:
    stream = Stream(cast(WebSocket, socket))
    stream.resumable = resumable
    return stream


@pytest.mark.parametrize("code", [1000, 1003, 1008, 4001])
def test_a_tunnel_that_is_over_waits_for_nobody(code: int) -> None:
    """Its client is done, or may not come back."""
    with pytest.raises(Closed):
        stream_of(Socket(code=code)).receive()


def test_a_client_without_a_key_does_not_come_back() -> None:
    stream = stream_of(Socket(), resumable=False)
    with pytest.raises(Closed):
        stream.receive()
    with pytest.raises(Closed):
        stream.write(Frame.OUTPUT, b"x")
    assert not stream.resume(cast(WebSocket, Socket()), 0, 0)


@pytest.mark.parametrize("code", [None, 1001, 1006, 1011, 1012, 4000])
def test_a_client_that_does_not_come_back_ends_the_tunnel(code: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RESUMABLE", 0.01)
    stream = stream_of(Socket(code=code))
    with pytest.raises(Closed):
        stream.receive()
    with pytest.raises(Closed):
        stream.write(Frame.OUTPUT, b"x")
    assert not stream.resume(cast(WebSocket, Socket()), 0, 0)


def test_what_the_client_has_not_got_comes_again() -> None:
    broken, other = Socket(), Socket(bytes((Frame.INPUT,)) + b"more")
    stream = stream_of(broken)
    stream.write(Frame.OUTPUT, b"one")
    stream.write(Frame.ERRORS, b"two")
    broken.broken = True
    stream.write(Frame.OUTPUT, b"three")  # kept for the next connection
    stream.tell(Frame.END, {"exit_code": 0})
    assert not stream.resume(cast(WebSocket, Socket()), 12, 0), "more than was sent"
    assert stream.resume(cast(WebSocket, other), 3, 3)
    assert other.sent == [
        (Frame.RESUMED, json.dumps({"received": 0, "taken": 0}).encode()),
        (Frame.ERRORS, b"two"),
        (Frame.OUTPUT, b"three"),
        (Frame.END, b'{"exit_code": 0}'),
    ]
    assert stream.receive() == (Frame.INPUT, b"more")


def test_no_more_is_kept_than_the_window_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RESUMABLE", 0.01)
    taken = bytes((Frame.TAKEN,)) + WINDOW.to_bytes(4, "big")
    socket = Socket(taken, code=1000)
    stream = stream_of(socket)
    for start in range(0, WINDOW, PIECE):
        stream.write(Frame.OUTPUT, bytes(min(PIECE, WINDOW - start)))
    with pytest.raises(Closed):
        stream.receive()  # the client has taken it all
    assert not stream._kept
