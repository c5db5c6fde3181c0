"""A GET without http.client, which takes more time than everything else that a small object costs."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping

from weft_trainer.http.answer import STALE, Answer, Begun, Response, Take, plain_headers, read_answer


def get(
    connection: http.client.HTTPConnection,
    target: str,
    netloc: str,
    headers: Mapping[str, str],
    buffer: memoryview,
    take: Take,
) -> Answer:
    """Ask for ``target`` of the host ``netloc``. An answer that is not of the plain kind goes to http.client after all,
    from its first byte on. ``buffer`` and ``take`` as in :func:`read_answer`.

    Raises:
        OSError, http.client.HTTPException: no answer came, or it broke off.
    """
    request = _request(target, netloc, headers)
    if connection.sock is None:
        connection.connect()
    sock: socket.socket = connection.sock
    sock.sendall(request)
    filled = sock.recv_into(buffer)
    if not filled:
        raise http.client.RemoteDisconnected("the connection ended without an answer")
    begun = bytes(buffer[:filled])
    end = begun.find(b"\r\n\r\n")
    found = plain_headers(begun[:end]) if end >= 0 else None
    if found is None:
        return _leave_to_http_client(connection, begun, buffer, take)
    left = int(found["content-length"]) - (filled - end - 4)
    if left < 0:
        raise http.client.HTTPException("the answer is longer than it says")
    if filled > end + 4:
        take(buffer[end + 4 : filled])
    while left:
        left -= _pass_on(sock, buffer[: min(left, len(buffer))], take)
    return Answer(int(begun[9:12]), found, b"")


def _leave_to_http_client(
    connection: http.client.HTTPConnection, begun: bytes, buffer: memoryview, take: Take
) -> Answer:
    response = Response(Begun(begun, connection.sock), method="GET")  # type: ignore[arg-type]
    try:
        response.begin()
        answer = read_answer(response, buffer, take)
    except STALE as error:  # the server has begun to answer, so the connection was not stale
        raise http.client.IncompleteRead(b"") from error
    if response.will_close:
        connection.close()
    return answer


def _request(target: str, netloc: str, headers: Mapping[str, str]) -> bytes:
    """The bytes of a GET, with the headers that http.client would add."""
    host = {} if any(name.lower() == "host" for name in headers) else {"Host": netloc.rpartition("@")[2]}
    lines = [f"{name}: {value}" for name, value in {**host, **headers, "Accept-Encoding": "identity"}.items()]
    if " " in target or not all(line.isprintable() for line in (target, *lines)):
        raise http.client.InvalidURL("a control character or blank where none may be")
    return "\r\n".join([f"GET {target} HTTP/1.1", *lines, "", ""]).encode("latin-1")


def _pass_on(sock: socket.socket, buffer: memoryview, take: Take) -> int:
    """Fill the buffer, as far as bytes come. ``take`` gets these bytes, also those before a break."""
    filled = 0
    try:
        while filled < len(buffer):
            count = sock.recv_into(buffer[filled:])
            if not count:
                raise http.client.IncompleteRead(b"", len(buffer) - filled)
            filled += count
    except STALE as error:
        raise http.client.IncompleteRead(b"", len(buffer) - filled) from error
    finally:
        if filled:
            take(buffer[:filled])
    return filled
