"""For training code: reads the objects of a data store in ``mode: stream`` while it trains.

    from weft_trainer.data import Stream

    stream = Stream("images")                       # the data store's id in the manifest
    for epoch in range(90):
        for key, data in stream.shuffled(epoch).split(rank, world).prefetch():
            ...                                     # data: the object's bytes

    with stream["train-00007.tar"].open() as file:  # or as a file, read in one go or here and there
        webdataset = tarfile.open(fileobj=file)

Standard library only. A request that fails is tried again, and a read that breaks off goes on where it was; an object
that has changed since it was listed is an error. Nothing is kept on the disk.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import random
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload
from urllib.parse import urlsplit

from weft_trainer.errors import DataError
from weft_trainer.http import Http, Take, Unreachable
from weft_trainer.stores.retry import PATIENCE, Temporary, patiently
from weft_trainer.stores.sigv4 import EMPTY, Signer
from weft_trainer.stores.temporary_keys import KeyFile

_TIMEOUT = 30.0
_BUFFER = 1 << 20
_https: dict[tuple[int, str], Http] = {}
_UNKNOWN = (KeyFile(""), "")
_signings: dict[str, tuple[KeyFile, str] | None] = {}


@dataclass(frozen=True)
class StreamObject:
    key: str
    size: int
    """Bytes."""
    etag: str
    _list: Path = field(repr=False)
    _url: str = field(repr=False)

    def read(self) -> bytes:
        """The whole object. Raises: DataError."""
        data = bytearray(self.size)
        source = _Source(self)
        at = 0

        def take(piece: memoryview) -> None:
            nonlocal at
            data[at : at + len(piece)] = piece
            at += len(piece)

        def fetch() -> None:
            if at < self.size:
                source.fetch(at, take)

        patiently(fetch, PATIENCE, progress=lambda: at)
        return bytes(data)

    def open(self) -> io.BufferedReader:
        """The object as a file to read, which may be sought in. Raises: DataError, then and at each read."""
        return io.BufferedReader(_Reader(self), _BUFFER)


class Stream(Sequence[StreamObject]):
    """The objects of one data store, in order of key (with ``shard: learner``: this learner's share of them). May be
    handed to other processes.

    Args:
        store: the data store's id; None: the only one in mode stream.

    Raises:
        DataError: there is no such data store in this job.
    """

    def __init__(self, store: str | None = None) -> None:
        folder = Path(os.environ.get("WEFT_STREAM_DIR") or "no-streams")
        there = sorted(path.stem for path in folder.glob("*.jsonl"))
        if store is None and len(there) == 1:
            store = there[0]
        if store not in there:
            names = ", ".join(there) or "none"
            raise DataError(f"no data store {store or ''!r} in mode stream; there are: {names}")
        path = folder / f"{store}.jsonl"
        with path.open() as lines:
            self._objects = [
                StreamObject(item["key"], item["size"], item["etag"], path, item["url"])
                for item in map(json.loads, lines)
            ]

    @classmethod
    def _of(cls, objects: list[StreamObject]) -> Stream:
        stream = cls.__new__(cls)
        stream._objects = objects
        return stream

    def __len__(self) -> int:
        return len(self._objects)

    @overload
    def __getitem__(self, which: int | str) -> StreamObject: ...

    @overload
    def __getitem__(self, which: slice) -> Stream: ...

    def __getitem__(self, which: int | slice | str) -> StreamObject | Stream:
        """By number, by key, or several."""
        if isinstance(which, str):
            for item in self._objects:
                if item.key == which:
                    return item
            raise KeyError(which)
        return self._of(self._objects[which]) if isinstance(which, slice) else self._objects[which]

    def __iter__(self) -> Iterator[StreamObject]:
        return iter(self._objects)

    def shuffled(self, seed: int) -> Stream:
        """In an order that depends on ``seed`` alone: the epoch's number, so that all ranks have the same order."""
        objects = list(self._objects)
        random.Random(seed).shuffle(objects)  # noqa: S311
        return self._of(objects)

    def split(self, rank: int, world: int) -> Stream:
        """One rank's share: every ``world``-th, from number ``rank``."""
        return self._of(self._objects[rank::world])

    def prefetch(self, ahead: int = 16, threads: int = 8) -> Iterator[tuple[str, bytes]]:
        """(key, content) of each, in order, with up to ``ahead`` objects read in advance."""
        with ThreadPoolExecutor(threads, "prefetch") as pool:
            waiting: deque[tuple[str, Future[bytes]]] = deque()
            try:
                for item in self._objects:
                    waiting.append((item.key, pool.submit(item.read)))
                    if len(waiting) >= ahead:
                        yield _result(waiting)
                while waiting:
                    yield _result(waiting)
            finally:
                for _, future in waiting:
                    future.cancel()


def _result(waiting: deque[tuple[str, Future[bytes]]]) -> tuple[str, bytes]:
    key, future = waiting.popleft()
    return key, future.result()


class _Source:
    """The requests for one object."""

    def __init__(self, item: StreamObject) -> None:
        self._item = item
        self.url = item._url
        self.http = _http(item._list)

    def headers(self, start: int) -> dict[str, str]:
        """Raises: DataError."""
        found = _signed(self._item._list, self.url)
        if start:
            found["Range"] = f"bytes={start}-"
        return found | ({"If-Match": f'"{self._item.etag}"'} if self._item.etag else {})

    def fetch(self, start: int, take: Take) -> None:
        try:
            answer = self.http.request("GET", self.url, headers=self.headers(start), timeout=_TIMEOUT, take=take)
        except Unreachable as error:
            raise Temporary(f"{self._item.key} can't be read: {error}") from error
        self.check(answer.status, answer.headers.get("etag", ""), start)

    def check(self, status: int, etag: str, start: int) -> None:
        """Raises: DataError, if the answer is not the object from ``start`` on."""
        what = f"{self._item.key} can't be read: "
        etag = etag.strip('"')
        if status == 412 or (status < 300 and self._item.etag and etag not in ("", self._item.etag)):
            raise DataError(what + "it was replaced since the job began")
        if status == 206 or (status == 200 and start == 0):
            return
        what += f"the store answers {status}"
        if status == 403 and _signing(self._item._list):
            raise Temporary(what)  # the agent renews the keys
        if status == 403 and (renewed := self._renewed()):
            self.url = renewed
            raise Temporary(what)
        if status == 404:
            raise DataError(what + ": it is not there any more")
        raise Temporary(what) if status >= 500 or status in (408, 429) else DataError(what)

    def _renewed(self) -> str | None:
        """The agent writes URLs anew before they end."""
        with self._item._list.open() as lines:
            for item in map(json.loads, lines):
                if item["key"] == self._item.key:
                    url: str = item["url"]
                    return url if url != self.url else None
        return None


class _Reader(io.RawIOBase):
    """An answer is read as long as reading goes on from where it was; a seek asks anew."""

    def __init__(self, item: StreamObject) -> None:
        self._item = item
        self._source = _Source(item)
        self._at = 0
        self._answer: tuple[http.client.HTTPConnection, http.client.HTTPResponse] | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._item.size}[whence]
        if at < 0:
            raise ValueError(f"negative position {at}")
        if at != self._at:
            self._drop()
            self._at = at
        return at

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        if self._at >= self._item.size:
            return 0
        count = patiently(lambda: self._read(memoryview(buffer).cast("B")), PATIENCE)
        self._at += count
        if self._at >= self._item.size:
            self._drop()
        return count

    def readall(self) -> bytes:
        data = bytearray(max(0, self._item.size - self._at))
        view = memoryview(data)
        while view:
            view = view[self.readinto(view) :]
        return bytes(data)

    def close(self) -> None:
        self._drop()
        super().close()

    def _read(self, buffer: memoryview) -> int:
        try:
            if self._answer is None:
                self._answer = self._ask()
            count = self._answer[1].readinto(buffer)
            if not count:
                raise http.client.IncompleteRead(b"")
            return count
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            host = urlsplit(self._source.url).netloc
            raise Temporary(f"{self._item.key} can't be read: {host}: {error or type(error).__name__}") from error

    def _ask(self) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        source = self._source
        connection, answer = source.http.open(source.url, source.headers(self._at), _TIMEOUT)
        try:
            source.check(answer.status, answer.headers.get("etag", ""), self._at)
        except DataError:
            connection.close()
            raise
        return connection, answer

    def _drop(self) -> None:
        if self._answer is not None:
            self._answer[0].close()
            self._answer = None


def _signed(path: Path, url: str) -> dict[str, str]:
    """The headers that sign a request for ``url``; none, if the list at ``path`` has signed URLs. Raises: DataError."""
    signing = _signing(path)
    if signing is None:
        return {}
    key_file, region = signing
    try:
        keys = key_file.current()
    except (OSError, ValueError, TypeError) as error:
        raise Temporary(f"the store's keys can't be read: {error}") from error
    parts = urlsplit(url)
    signer = Signer(keys.access_key, keys.secret_key, keys.session_token, region)
    headers = signer.headers("GET", parts.netloc, parts.path, "", EMPTY)
    del headers["host"]
    return headers


def _signing(path: Path) -> tuple[KeyFile, str] | None:
    """The keys for a list's URLs, and the region; None: the URLs are signed."""
    found = _signings.get(str(path), _UNKNOWN)
    if found is _UNKNOWN:
        try:
            signing = json.loads(path.with_suffix(".signing.json").read_text())
            found = (KeyFile(signing["key_file"]), signing["region"])
        except FileNotFoundError:
            found = None
        _signings[str(path)] = found
    return found


def _http(path: Path) -> Http:
    """The client of this very process: a forked process can't share its parent's connections."""
    key = (os.getpid(), str(path))
    found = _https.get(key)
    if found is None:
        ca = path.with_suffix(".pem")
        found = _https[key] = Http(ca.read_text() if ca.exists() else None)
    return found
