"""The agent's reading of objects: answers byte by byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from weft_trainer.http import Answer, Http, Unreachable

_OK = b"HTTP/1.1 200 OK\r\n"
_NEXT = _OK + b"Content-Length: 4\r\n\r\nnext"


class Server:
    """Answers each connection's requests by the pieces it was given, and ends it when they are used up."""

    def __init__(self, connections: Sequence[Sequence[Sequence[bytes]]]) -> None:
        self.requests: list[bytes] = []
        self.accepted = 0
        self._connections = connections
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(30)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/path?q=1"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for answers in self._connections:
            connection, _ = self._socket.accept()
            self.accepted += 1
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                for pieces in answers:
                    asked = b""
                    while b"\r\n\r\n" not in asked:
                        if not (came := connection.recv(65536)):
                            break
                        asked += came
                    self.requests.append(asked)
                    for piece in pieces:
                        connection.sendall(piece)
                        threading.Event().wait(0.02)  # so that the pieces come one by one

    def close(self) -> None:
        self._socket.close()


@contextmanager
def serving(*connections: Sequence[Sequence[bytes]]) -> Iterator[Server]:
    server = Server(connections)
    try:
        yield server
    finally:
        server.close()


def get(http: Http, server: Server) -> tuple[Answer, bytes]:
    body = bytearray()
    answer = http.request("GET", server.url, take=lambda piece: body.extend(piece), timeout=300)
    return answer, bytes(body)


_BIG = bytes(range(256)) * 1000

WHOLE = {
    "in one": ([_OK + b'Content-Length: 4\r\nETag: "x"\r\n\r\nbody'], b"body"),
    "empty": ([_OK + b'Content-Length: 0\r\nETag: "x"\r\n\r\n'], b""),
    "a range": ([b'HTTP/1.1 206 Partial Content\r\ncontent-length:4\r\netag: "x"\r\n\r\nbody'], b"body"),
    "head and body apart": ([_OK + b'Content-Length: 4\r\nETag: "x"\r\n\r\n', b"bo", b"dy"], b"body"),
    "a head in pieces": ([_OK + b"Content-Len", b'gth: 4\r\nETag: "x"\r\n\r', b"\nbody"], b"body"),
    "larger than a buffer": ([_OK + b'Content-Length: 256000\r\nETag: "x"\r\n\r\n' + _BIG], _BIG),
    "in chunks": (
        [_OK + b'Transfer-Encoding: chunked\r\nETag: "x"\r\n\r\n2\r\nbo\r\n', b"2\r\ndy\r\n0\r\n\r\n"],
        b"body",
    ),
    "after a 100": (
        [b"HTTP/1.1 100 Continue\r\n\r\n" + _OK + b'Content-Length: 4\r\nETag: "x"\r\n\r\nbody'],
        b"body",
    ),
    "lines without carriage returns": ([b'HTTP/1.1 200 OK\nContent-Length: 4\nETag: "x"\n\nbody'], b"body"),
    "keep-alive said": (
        [_OK + b'Connection: Keep-Alive\r\nContent-Length: 4\r\nETag: "x"\r\n\r\nbody'],
        b"body",
    ),
    "the same header twice": (
        [_OK + b'Vary: a\r\nVary: b\r\nContent-Length: 4\r\nETag: "x"\r\n\r\nbody'],
        b"body",
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_an_answer_that_keeps_the_connection(case: str) -> None:
    pieces, body = WHOLE[case]
    http = Http()
    with serving([pieces, [_NEXT]]) as server:
        answer, came = get(http, server)
        assert (came, answer.headers["etag"], answer.status // 100) == (body, '"x"', 2)
        assert get(http, server)[1] == b"next"
        assert server.accepted == 1, "on the same connection"
    assert server.requests[0].startswith(b"GET /path?q=1 HTTP/1.1\r\nHost: 127.0.0.1:")


ENDS = {
    "by the end of the connection": [_OK + b"\r\nbo", b"dy"],
    "with a word": [_OK + b"Connection: close\r\nContent-Length: 4\r\n\r\nbody"],
    "of HTTP/1.0": [b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody"],
}


@pytest.mark.parametrize("case", ENDS)
def test_an_answer_that_ends_the_connection(case: str) -> None:
    http = Http()
    with serving([ENDS[case]], [[_NEXT]]) as server:
        assert get(http, server)[1] == b"body"
        assert get(http, server)[1] == b"next"
        assert server.accepted == 2


BROKEN = {
    "no answer": [],
    "a part of the head": [_OK + b"Content-Length: 4\r\n"],
    "a part of the body": [_OK + b"Content-Length: 4\r\n\r\nbo"],
    "a part of a large body": [_OK + b"Content-Length: 256000\r\n\r\n" + _BIG[:100_000]],
    "a part of the chunks": [_OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbo"],
    "more than announced": [_OK + b"Content-Length: 2\r\n\r\nbody"],
    "no HTTP": [b"SSH-2.0-OpenSSH_9.2\r\n\r\n"],
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_answer_that_is_not_whole_is_no_answer(case: str) -> None:
    http = Http()
    with serving([BROKEN[case]], [[_NEXT]]) as server:
        with pytest.raises(Unreachable):
            get(http, server)
        assert get(http, server)[1] == b"next", "on a connection of its own"
        assert server.accepted == 2


def test_what_came_before_a_break_was_handed_on() -> None:
    body = bytearray()
    pieces = [_OK + b"Content-Length: 256000\r\n\r\n" + _BIG[:100_000]]
    with serving([pieces]) as server, pytest.raises(Unreachable):
        Http().request("GET", server.url, take=lambda piece: body.extend(piece), timeout=300)
    assert bytes(body) == _BIG[:100_000]


def test_a_connection_that_has_gone_stale_is_made_anew() -> None:
    http = Http()
    with serving([[_NEXT]], [[_NEXT]]) as server:
        assert get(http, server)[1] == b"next"
        assert get(http, server)[1] == b"next"
        assert server.accepted == 2


def test_an_error_is_not_taken_for_a_body() -> None:
    with serving([[b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nwhy?"], [_NEXT]]) as server:
        http = Http()
        answer, came = get(http, server)
        assert (answer.status, answer.body, came) == (403, b"why?", b"")


def test_what_is_taken_must_not_fail_the_next_request() -> None:
    def refuse(piece: memoryview) -> None:
        raise ValueError("enough")

    http = Http()
    with serving([[_OK + b"Content-Length: 4\r\n\r\n", b"body"]], [[_NEXT]]) as server:
        with pytest.raises(ValueError, match="enough"):
            http.request("GET", server.url, take=refuse, timeout=300)
        assert get(http, server)[1] == b"next"


def test_headers_hold_no_line_breaks() -> None:
    with serving() as server, pytest.raises(Unreachable, match="control character"):
        Http().request("GET", server.url, headers={"If-Match": "x\r\nHost: other"}, take=print, timeout=300)
