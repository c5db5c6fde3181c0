"""The installation's own store: the API signs each URL, the bytes go to S3 directly."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from weft_trainer.errors import DataError
from weft_trainer.http import Answer, Http, Unreachable
from weft_trainer.service.client import ApiClient
from weft_trainer.stores.retry import Temporary
from weft_trainer.stores.store import Multipart, Stored

_BATCH = 200
_URL_SECONDS = 300.0
"""How long an announced URL is used; the API signs for longer."""
_SLOW = 120.0


class InstallationStore:
    """One space of a job: 'results', 'checkpoints', 'profiles' or 'exit'."""

    def __init__(self, api: ApiClient, space: str) -> None:
        self._api = api
        self._space = space
        self._http = Http()
        self._lock = threading.Lock()
        self._announced: dict[str, tuple[str, float]] = {}

    def list(self, prefix: str = "") -> builtins.list[Stored]:
        return [Stored(entry["key"], entry["size"]) for entry in self._api.list_objects(self._space, prefix)]

    def read(self, key: str) -> bytes | None:
        answer = self._request("GET", key)
        return None if answer.status == 404 else _checked(answer, key).body

    def fetch(self, key: str, path: Path, came: Callable[[int], None] = lambda size: None) -> None:
        """``came`` gets the size of each piece."""
        with path.open("wb") as file:

            def take(piece: memoryview) -> None:
                file.write(piece)
                came(len(piece))

            url = self._url("get", key)
            try:
                answer = self._http.request("GET", url, timeout=_SLOW, take=take)
            except Unreachable as error:
                raise Temporary(f"{self._space}/{key}: {error}") from error
        _checked(answer, key)

    def announce(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _BATCH):
            urls = self._api.object_urls(self._space, "put", keys[start : start + _BATCH])
            now = time.monotonic()
            with self._lock:
                self._announced |= {key: (url, now) for key, url in urls.items()}

    def put_file(self, key: str, path: Path) -> None:
        with path.open("rb") as file:
            size = path.stat().st_size
            url = self._url("put", key)
            try:
                answer = self._http.request("PUT", url, body=file, headers={"Content-Length": str(size)}, timeout=_SLOW)
            except Unreachable as error:
                raise Temporary(f"{self._space}/{key}: {error}") from error
        _checked(answer, key)

    def put_bytes(self, key: str, data: bytes) -> None:
        _checked(self._request("PUT", key, data), key)

    def head(self, key: str) -> Stored | None:
        """Without its ETag."""
        return next((stored for stored in self.list(key) if stored.key == key), None)

    def begin_multipart(self, key: str) -> Multipart:
        return Multipart(key, self._api.begin_multipart(self._space, key))

    def put_part(self, upload: Multipart, number: int, data: bytes) -> str:
        url = self._api.part_url(self._space, upload.key, upload.id, number)
        try:
            answer = self._http.request("PUT", url, body=data, timeout=_SLOW)
        except Unreachable as error:
            raise Temporary(f"{self._space}/{upload.key}: {error}") from error
        return _checked(answer, upload.key).headers.get("etag", "")

    def complete_multipart(self, upload: Multipart, etags: Sequence[str]) -> None:
        self._api.complete_multipart(self._space, upload.key, upload.id, etags)

    def abort_multipart(self, upload: Multipart) -> None:
        self._api.abort_multipart(self._space, upload.key, upload.id)

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _BATCH):
            self._api.delete_objects(self._space, keys[start : start + _BATCH])

    def _request(self, method: str, key: str, body: bytes | None = None) -> Answer:
        try:
            return self._http.request(method, self._url(method.lower(), key), body=body, timeout=_SLOW)
        except Unreachable as error:
            raise Temporary(f"{self._space}/{key}: {error}") from error

    def _url(self, operation: str, key: str) -> str:
        if operation == "put":
            with self._lock:
                url, at = self._announced.pop(key, ("", 0.0))
            if url and time.monotonic() - at < _URL_SECONDS:
                return url
        return self._api.object_urls(self._space, operation, [key])[key]


def _checked(answer: Answer, key: str) -> Answer:
    if answer.status < 300:
        return answer
    words = f"{key}: the installation's store answers {answer.status}"
    # 403: the signature may just have run out; the next try gets a new one.
    if answer.status >= 500 or answer.status in (403, 408, 429):
        raise Temporary(words)
    raise DataError(words)
