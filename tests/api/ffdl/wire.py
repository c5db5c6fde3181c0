"""HTTP and websockets as bytes, written the way FfDL's Go client writes them."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

BOUNDARY = "4bd0c1b6a4ae0e9f5b0e1ad1b1cbd5e2b8a7a43b1f13a4e9f2dfd0d7a1f3"
_STREAMS = ("/definition", "/trained_model", "/logs", "/metrics")


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        assert self.headers["Content-Type"] == "application/json", self.body
        return json.loads(self.body)

    def error(self) -> str:
        """The description of an error, which must have FfDL's form."""
        body = self.json()
        assert set(body) == {"code", "error", "description"}, body
        assert body["code"] == self.status
        assert isinstance(body["error"], str)
        assert body["error"]
        text: str = body["description"]
        return text


@dataclass
class Wire:
    """FfDL's client as a server sees it: its ``DLAAS_USERNAME`` and ``DLAAS_PASSWORD``, and the server's address."""

    url: str
    user: str
    password: str = "unused"
    agent: str = "Go-http-client/1.1"

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def connect(self) -> socket.socket:
        parts = urlsplit(self.url)
        return socket.create_connection((parts.hostname, parts.port or 80), 120)

    def head(self, method: str, path: str, length: str = "", kind: str = "", basic: bool = True) -> bytes:
        """With the version that the client sends, and its headers in its order."""
        accepted = "octet-stream" if path.partition("?")[0].endswith(_STREAMS) else "json"
        given = [
            f"{method} {_dated(path, '2017-02-13')} HTTP/1.1",
            f"Host: {urlsplit(self.url).netloc}",
            f"User-Agent: {self.agent}",
            length,
            f"Accept: application/{accepted}",
            f"Authorization: {self.basic}" if basic else "",
            f"Content-Type: {kind}" if kind else "",
            f"X-Watson-Userinfo: bluemix-instance-id={self.user}",
            "Accept-Encoding: gzip",
        ]
        return ("\r\n".join(line for line in given if line) + "\r\n\r\n").encode()

    def call(self, method: str, path: str, body: bytes = b"", kind: str = "", basic: bool = True) -> Answer:
        length = f"Content-Length: {len(body)}" if body else ""
        with self.connect() as connection:
            head = self.head(method, path, length, kind or ("application/json" if body else ""), basic)
            connection.sendall(head + body)
            return read(connection, method)

    def get(self, path: str, basic: bool = True) -> Answer:
        return self.call("GET", path, basic=basic)

    def train(
        self,
        manifest: str,
        code: bytes | None,
        name: str = "manifest.yml",
        piece: int = 7000,
        code_first: bool = False,
    ) -> Answer:
        """The upload: chunked, no Content-Length, both parts as octet-streams, in an order left to chance (the client
        has them in a map)."""
        with self.uploading(manifest, code, name, piece, code_first=code_first) as (connection, chunks):
            for chunk in chunks:
                connection.sendall(chunk)
            return read(connection, "POST")

    @contextmanager
    def uploading(
        self, manifest: str, code: bytes | None, name: str = "manifest.yml", piece: int = 7000, code_first: bool = False
    ) -> Iterator[tuple[socket.socket, Iterator[bytes]]]:
        """An upload whose headers have been sent, and the chunks that are still to be."""
        fields = [multipart("manifest", name, manifest.encode())]
        if code is not None:
            fields.insert(0 if code_first else 1, multipart("model_definition", "dlaas582043127", code))
        parts = b"\r\n".join(fields) + f"\r\n--{BOUNDARY}--\r\n".encode()

        def chunks() -> Iterator[bytes]:
            for start in range(0, len(parts), piece):
                data = parts[start : start + piece]
                yield f"{len(data):x}\r\n".encode() + data + b"\r\n"
            yield b"0\r\n\r\n"

        with self.connect() as connection:
            kind = f"multipart/form-data; boundary={BOUNDARY}"
            connection.sendall(self.head("POST", "/v1/models", "Transfer-Encoding: chunked", kind))
            yield connection, chunks()

    def websocket(self, path: str, protocol: str = "ws") -> Socket:
        """As golang.org/x/net/websocket opens one."""
        return Socket(self, path, protocol)


def multipart(field: str, filename: str, content: bytes) -> bytes:
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"; filename="{filename}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    return head.encode() + content


def _dated(path: str, version: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}version={version}"


def read(connection: socket.socket, method: str = "GET") -> Answer:
    answer = http.client.HTTPResponse(connection, method=method)
    answer.begin()
    return Answer(answer.status, answer.headers, answer.read())


class Socket:
    """A websocket, frame by frame. Iterating gives the text frames, until the server has closed it."""

    def __init__(self, wire: Wire, path: str, protocol: str) -> None:
        key = base64.b64encode(b"0123456789abcdef").decode()
        self._connection = wire.connect()
        self.code: int | None = None
        lines = [
            f"GET {_dated(path, '2017-03-17')} HTTP/1.1",
            f"Host: {urlsplit(wire.url).netloc}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Origin: http://localhost/",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Protocol: {protocol}",
            f"Authorization: {wire.basic}",
            f"X-Watson-Userinfo: bluemix-instance-id={wire.user}",
        ]
        self._connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        # Byte by byte: frames may follow at once.
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self._connection.recv(1)
            assert byte, head
            head += byte
        status, *rest = head.decode().split("\r\n")
        self.status = int(status.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        self.body = b""
        if self.status != 101:
            self.body = self._exactly(int(self.headers["content-length"]))

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def __iter__(self) -> Iterator[str]:
        while True:
            first, second = self._exactly(2)
            length = second & 0x7F
            assert not second & 0x80, "a server masks nothing"
            if length == 126:
                (length,) = struct.unpack(">H", self._exactly(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self._exactly(8))
            data = self._exactly(length)
            opcode = first & 0x0F
            if opcode == 8:
                (self.code,) = struct.unpack(">H", data[:2])
                return
            if opcode == 9:  # who does not answer is cut off
                self._connection.sendall(bytes((0x8A, 0x80 | length)) + bytes(4) + data)
                continue
            assert first == 0x81, "whole text frames"
            assert length <= 8192, "what the client reads at once"
            yield data.decode()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._connection.recv(size - len(data))
            assert piece, "the connection was cut"
            data += piece
        return data
