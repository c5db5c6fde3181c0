"""Answers as they are read: a parser of headers that is faster than ``http.client``'s, and bodies in pieces."""

from __future__ import annotations

import http.client
import io
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
"""The errors of a connection that the server has closed while it was idle."""
_MOST_HEADERS = 200
_LONGEST_LINE = 65536

Take = Callable[[memoryview], object]
"""Takes a piece of a body. The memory is used again afterwards."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes


class _Headers:
    """The part of a response's headers that http.client and this package ask for."""

    def __init__(self, lines: list[bytes]) -> None:
        self.found: dict[str, str] = {}
        for line in lines:
            name, _, value = line.decode("iso-8859-1").partition(":")
            self.found.setdefault(name.strip().lower(), value.strip())

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.found.get(name.lower(), default)


class Response(http.client.HTTPResponse):
    """http.client's parser of headers is that of mail, and takes a third of all the time that a small object costs."""

    def begin(self) -> None:
        if self.headers is not None:  # type: ignore[redundant-expr, unused-ignore]
            return
        while True:
            version, status, reason = self._read_status()
            headers = _Headers(list(self._lines()))
            if status != http.client.CONTINUE:
                break
        self.code = self.status = status
        self.reason = reason.strip()
        self.version = 10 if version in ("HTTP/1.0", "HTTP/0.9") else 11
        self.headers = self.msg = headers
        self.chunked = (headers.get("transfer-encoding") or "").lower() == "chunked"
        self.chunk_left: int | None = None
        closing = (headers.get("connection") or "").lower()
        self.will_close = "close" in closing or (self.version == 10 and "keep-alive" not in closing)
        length = headers.get("content-length") or ""
        self.length = int(length) if length.isdecimal() and not self.chunked else None
        bodiless = status in (http.client.NO_CONTENT, http.client.NOT_MODIFIED) or self._method == "HEAD"
        if bodiless:
            self.length = 0
        if not self.will_close and not self.chunked and self.length is None:
            self.will_close = True

    def _lines(self) -> Iterator[bytes]:
        for _ in range(_MOST_HEADERS):
            line = self.fp.readline(_LONGEST_LINE + 1)
            if len(line) > _LONGEST_LINE:
                raise http.client.LineTooLong("header line")
            if line in (b"\r\n", b"\n"):
                return
            if not line:
                raise http.client.IncompleteRead(b"")
            yield line
        raise http.client.HTTPException(f"more than {_MOST_HEADERS} headers")

    def getheaders(self) -> list[tuple[str, str]]:
        return list(self.headers.found.items())  # type: ignore[attr-defined]


class Begun(io.RawIOBase):
    """A connection of which something has been read already, in a socket's place for http.client."""

    def __init__(self, begun: bytes, sock: socket.socket) -> None:
        self._begun = begun
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._begun:
            return self._sock.recv_into(buffer)
        count = min(len(buffer), len(self._begun))
        buffer[:count], self._begun = self._begun[:count], self._begun[count:]
        return count

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)


def plain_headers(head: bytes) -> dict[str, str] | None:
    """The headers of an answer (without the empty line) that holds no surprise: 200 or 206, a body of known length, the
    connection kept. None: http.client has to interpret the answer."""
    first, *lines = head.split(b"\r\n")
    if not first.startswith((b"HTTP/1.1 200", b"HTTP/1.1 206")) or len(lines) > _MOST_HEADERS:
        return None
    if b"\n" in b"".join(lines) or any(line[:1].isspace() or b":" not in line for line in lines):
        return None
    found = _Headers(lines).found
    length = found.get("content-length", "")
    unusual = "transfer-encoding" in found or found.get("connection", "keep-alive").lower() != "keep-alive"
    twice = len(found) != len(lines)
    return None if unusual or twice or not (length.isascii() and length.isdecimal()) else found


def read_answer(response: http.client.HTTPResponse, buffer: memoryview, take: Take | None) -> Answer:
    """The whole answer. A 2xx body goes to ``take`` piece by piece, by way of ``buffer``.

    Raises:
        OSError, http.client.HTTPException: it breaks off.
    """
    found = dict(response.getheaders())
    if take is None or not 200 <= response.status < 300:
        return Answer(response.status, found, response.read())
    expected = response.length
    came = 0
    while count := _read(response, buffer):
        take(buffer[:count])
        came += count
    # http.client's readinto, unlike its read, takes the end of the connection for the end of the body.
    if expected is not None and came != expected:
        raise http.client.IncompleteRead(b"", expected - came)
    return Answer(response.status, found, b"")


def _read(response: http.client.HTTPResponse, buffer: memoryview) -> int:
    try:
        return response.readinto(buffer)
    except STALE as error:  # the server has begun to answer, so the connection was not stale
        raise http.client.IncompleteRead(b"") from error
