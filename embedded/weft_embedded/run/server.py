"""The learner's API over HTTP, on the loopback interface for as long as the run lasts; and the folders in place of the
installation's own store, by URLs that lead back here."""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from weft_embedded.run.learners import Gang, Refused
from weft_embedded.run.parts import PARTS, PartedUploads, move_into_place

_API = "/api/v1/learner/"
_CHUNK = 1 << 20
_LARGEST_CALL = 16 << 20
_SPACES = ("results", "checkpoints", "exit")


class LearnerServer:
    """Serves one gang at a time.

    Args:
        spaces: a folder for each of 'results' and 'checkpoints'.
        incoming: for files that are on their way into one of them.
        code: the zip that learners get.
        overlay: the zip of the packages that their image lacks.
        data: folders that learners read from by URLs, by data store.
    """

    def __init__(
        self,
        spaces: dict[str, Path],
        incoming: Path,
        code: Path | None,
        data: Mapping[str, Path] | None = None,
        overlay: Path | None = None,
    ) -> None:
        self._spaces = spaces
        self._data = data or {}
        self._incoming = incoming
        self._parts = PartedUploads(incoming)
        self._bundles = {"code.zip": code, "overlay.zip": overlay}
        self._gang: Gang | None = None
        self._token = ""
        # As a presigned URL's signature: anyone with the URL may use it, and nobody can invent one.
        self._signature = secrets.token_urlsafe(24)
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def serving(self) -> Iterator[LearnerServer]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def serve(self, gang: Gang, token: str) -> None:
        """From now on this gang's learners are answered, and no others."""
        self._gang, self._token = gang, token

    @property
    def code_url(self) -> str:
        return f"{self.url}/{self._signature}/code.zip"

    @property
    def overlay_url(self) -> str:
        return f"{self.url}/{self._signature}/overlay.zip"

    def data_url(self, store: str, key: str) -> str:
        """The URL at which a file of a data store's folder is read."""
        return f"{self.url}/{self._signature}/data/{quote(store, safe='')}/{quote(key)}"

    # --- calls ---

    def answer(self, operation: str, authorization: str, call: dict[str, Any]) -> Any:
        """The answer to a learner's call; None: no content. Raises Refused."""
        gang = self._gang
        if gang is None or not hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode()):
            raise Refused(410, "stale_attempt", "no attempt has this token: stop and exit")
        match operation:
            case (
                "start"
                | "address"
                | "peers"
                | "phase"
                | "heartbeat"
                | "logs"
                | "metrics"
                | "stacks"
                | "storing"
                | "exit"
            ):
                return getattr(gang, operation)(call)
            case "objects":
                gang.check(call)
                return self._objects(call)
        raise Refused(404, "not_found", f"a run on this machine has no {operation!r}")

    def _objects(self, call: dict[str, Any]) -> dict[str, Any]:
        space, keys = str(call["space"]), [str(key) for key in call.get("keys", [])]
        if space not in _SPACES:
            raise Refused(400, "invalid_request", f"space: found {space!r}, accepted: {', '.join(_SPACES)}")
        for key in keys:
            _check_key(key.removesuffix("/") if call["op"] == "list" else key)
        match call["op"]:
            case "put" | "get":
                base = f"{self.url}/{self._signature}/{space}"
                return {"urls": {key: f"{base}/{quote(key)}" for key in keys}, "objects": None}
            case "delete":
                for key in keys:
                    (self._spaces[space] / key).unlink(missing_ok=True)
                return {"urls": None, "objects": []}
            case "list":
                return {"urls": None, "objects": self._listed(space, keys or [""])}
            case "begin" | "parts" | "complete" | "abort":
                return self._parts.answer(call, self.find_target(space, keys[0]), f"{self.url}/{self._signature}")
        accepted = "put, get, list, delete, begin, parts, complete, abort"
        raise Refused(400, "invalid_request", f"op: found {call['op']!r}, accepted: {accepted}")

    def find_target(self, space: str, key: str) -> Path:
        """The file of an object."""
        return self._spaces.get(space, self._incoming / "exit") / key

    def _listed(self, space: str, prefixes: list[str]) -> list[dict[str, Any]]:
        folder = self._spaces[space]
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        return [
            {"key": key, "size": path.stat().st_size}
            for key, path in sorted(files.items())
            if key.startswith(tuple(prefixes))
        ]

    # --- bytes ---

    def find(self, path: str, *, reading: bool = False) -> Path | None:
        """The file behind a URL's path, if its signature is right; it need not exist."""
        signature, _, rest = path.lstrip("/").partition("/")
        if not hmac.compare_digest(signature.encode(), self._signature.encode()):
            return None
        if rest in self._bundles:
            return self._bundles[rest] if reading else None
        space, _, key = rest.partition("/")
        if space == PARTS:
            return None if reading else self._parts.find(key)
        store, _, file = key.partition("/")
        folder = self._spaces.get(space, self._incoming / "exit")
        if space == "data":
            if not reading or unquote(store) not in self._data:
                return None
            folder, key = self._data[unquote(store)], file
        try:
            _check_key(unquote(key))
        except Refused:
            return None
        return folder / unquote(key)

    def take(self, target: Path, source: BufferedIOBase, size: int) -> None:
        """Write ``size`` bytes to ``target``, which appears whole."""
        target.parent.mkdir(parents=True, exist_ok=True)
        part = self._incoming / secrets.token_hex(8)
        try:
            with part.open("wb") as file:
                while size:
                    data = source.read(min(_CHUNK, size))
                    if not data:
                        raise ConnectionError("the request broke off")
                    file.write(data)
                    size -= len(data)
            move_into_place(part, target)
        finally:
            part.unlink(missing_ok=True)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    owner: LearnerServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing is logged, as nobody would read it."""

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"] or 0)
        if size > _LARGEST_CALL:
            self.close_connection = True
            return self._problem(Refused(413, "too_large", f"{size:,} bytes, accepted are {_LARGEST_CALL:,}"))
        body = self.rfile.read(size)
        return self._call(lambda: json.loads(body.decode("utf-8", "replace")))

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path.startswith(_API):
            return self._call(lambda: {name: values[0] for name, values in parse_qs(parts.query).items()})
        found = self.server.owner.find(parts.path, reading=True)
        try:
            file = found.open("rb") if found is not None and found.is_file() else None
        except OSError:
            file = None
        if file is None:
            return self._send(404, b"")
        with file:
            return self._send_file(file)

    def _send_file(self, file: BufferedIOBase) -> None:
        size = file.seek(0, os.SEEK_END)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        end = min(int(asked[2]) + 1 if asked and asked[2] else size, size)
        if asked and start >= size:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        file.seek(start)
        while start < end and (data := file.read(min(_CHUNK, end - start))):
            self.wfile.write(data)
            start += len(data)

    def do_PUT(self) -> None:
        target = self.server.owner.find(urlsplit(self.path).path)
        size = int(self.headers["Content-Length"] or 0)
        if target is None:
            self.close_connection = True  # its body is not read
            return self._send(403, b"")
        try:
            self.server.owner.take(target, self.rfile, size)
        except OSError as error:
            self.close_connection = True
            return self._send(507, str(error).encode())
        return self._send(200, b"")

    def _call(self, read: Any) -> None:
        operation = urlsplit(self.path).path.removeprefix(_API)
        try:
            answer = self.server.owner.answer(operation, self.headers.get("Authorization", ""), read())
        except Refused as refused:
            return self._problem(refused)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            return self._problem(Refused(400, "invalid_request", f"{operation}: {type(error).__name__}: {error}"))
        return self._send(204, b"") if answer is None else self._send(200, json.dumps(answer).encode())

    def _problem(self, refused: Refused) -> None:
        problem = {"status": refused.status, "code": refused.code, "title": "refused", "detail": refused.detail}
        self._send(refused.status, json.dumps(problem).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _check_key(key: str) -> None:
    parts = key.split("/")
    if not key.isprintable() or "\\" in key or any(part in ("", ".", "..") for part in parts):
        raise Refused(400, "invalid_request", f"keys: {key[:100]!r} is not a relative path")
