"""Transfers to and from S3 by presigned URLs, and downloads from the API: in parts, in parallel, with retries."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from weft.errors import TransferError, Unavailable
from weft.transport.http import jitter

Progress = Callable[[int], None]
"""Called with the number of bytes that have just been transferred; negative if a part starts again."""
Opener = Callable[[Mapping[str, str]], AbstractContextManager[httpx.Response]]
"""Opens a GET with the given headers (``Range``)."""

PARALLEL = 4
_BLOCK = 1 << 18
_UNMARKED = "unmarked"  # in the name of a .part file: the server gave nothing to identify the object by
_DELAYS = (0.2, 0.5, 1.0, 2.0, 4.0)


def silent(count: int) -> None:
    """A progress callback that does nothing."""


@dataclass(frozen=True)
class Part:
    """A part of a file and its presigned URL; ``offset`` and ``size`` in bytes."""

    number: int
    url: str
    offset: int
    size: int


class Renewals:
    """The parts of an upload, whose URLs end before a long upload does.

    Args:
        ask: asks the server for the same parts with new URLs.
    """

    def __init__(self, parts: Sequence[Part], ask: Callable[[], Sequence[Part]]) -> None:
        self._urls = {part.number: part.url for part in parts}
        self._ask = ask
        self._lock = threading.Lock()

    def renew(self, number: int, refused: str) -> str:
        """A new URL for a part. Parts that are refused at the same time share one request."""
        with self._lock:
            if self._urls[number] == refused:
                self._urls = {part.number: part.url for part in self._ask()}
            return self._urls[number]


class Parts:
    """Sends the parts of files, ``PARALLEL`` at a time. Several files may share an object."""

    def __init__(
        self,
        http: httpx.Client,
        *,
        delays: Sequence[float] = _DELAYS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._http = http
        self._delays = tuple(delays)
        self._sleep = sleep

    def send(
        self,
        path: Path,
        parts: Sequence[Part],
        progress: Progress = silent,
        ask: Callable[[], Sequence[Part]] | None = None,
    ) -> list[str]:
        """Upload all parts of ``path``; returns their ETags in the order of the parts.

        Args:
            ask: asks the server for the same parts with new URLs; None: the URLs last for long enough.

        Raises:
            TransferError: a part could not be sent, even after retries, or the file has changed meanwhile.
        """
        renewals = Renewals(parts, ask) if ask else None
        if len(parts) == 1:
            return [self._send_part(path, parts[0], progress, threading.Event(), renewals)]
        given_up = threading.Event()
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="weft-part") as pool:
            futures = [pool.submit(self._send_part, path, part, progress, given_up, renewals) for part in parts]
            try:
                return [future.result() for future in futures]
            except BaseException:
                # After one failed part (or Ctrl-C) the file is lost, so the other parts can stop.
                given_up.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _send_part(
        self, path: Path, part: Part, progress: Progress, given_up: threading.Event, renewals: Renewals | None
    ) -> str:
        failure, url, renewed = "", part.url, False
        for delay in (*self._delays, None):
            sent = 0

            def chunks() -> Iterator[bytes]:
                nonlocal sent
                for block in _blocks(path, part):
                    if given_up.is_set():
                        raise TransferError(f"the upload of {path} was stopped")
                    sent += len(block)
                    progress(len(block))
                    yield block

            try:
                response = self._http.put(url, content=chunks(), headers={"Content-Length": str(part.size)})
            except httpx.TransportError as error:
                failure, renewed = store_unreachable(url, error), False
            else:
                if response.is_success:
                    return str(response.headers.get("etag", ""))
                failure = _refusal(response)
                if response.status_code == 403 and renewals is not None and not renewed:
                    progress(-sent)
                    url, renewed = renewals.renew(part.number, url), True
                    continue
                if response.status_code < 500 and response.status_code not in (408, 429):
                    raise TransferError(f"{path} was not stored: {failure}")
            progress(-sent)
            if delay is not None:
                self._sleep(jitter(delay))
        raise TransferError(f"{path} was not stored: {failure}")


def plan(parts: Sequence[Mapping[str, object]]) -> list[Part]:
    """The server's list of parts, with the offset of each."""
    planned, offset = [], 0
    for part in parts:
        size = int(str(part["size"]))
        planned.append(Part(int(str(part["number"])), str(part["url"]), offset, size))
        offset += size
    return planned


def _blocks(path: Path, part: Part) -> Iterator[bytes]:
    left = part.size
    try:
        with path.open("rb") as file:
            file.seek(part.offset)
            while left:
                block = file.read(min(_BLOCK, left))
                if not block:
                    raise TransferError(f"{path} became shorter while it was being sent")
                left -= len(block)
                yield block
    except OSError as error:
        raise TransferError(f"{path} can't be read: {error.strerror}") from error


def download(
    open_at: Opener,
    target: Path,
    progress: Progress = silent,
    *,
    delays: Sequence[float] = _DELAYS,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Download into a ``.part`` file beside ``target``, which gets its name when it is complete.

    A later call continues with the ``.part`` file (by Range), if the server supports this and the object is the same.

    Args:
        open_at: opens the GET with the given headers.
        target: the file to create; an existing file is replaced at the end.
        progress: called with the numbers of bytes, including those from an earlier call.

    Raises:
        TransferError: the download failed, even after retries, or can't be written; the ``.part`` file stays.
    """
    failures = 0
    farthest = 0
    while True:
        counted = 0

        def count(size: int) -> None:
            nonlocal counted
            counted += size
            progress(size)

        try:
            _fetch(open_at, target, count)
            return
        except Unavailable as error:
            # While each try gets farther than all tries before, there is no reason to give up.
            failures = 0 if counted > farthest else failures + 1
            farthest = max(farthest, counted)
            progress(-counted)
            if failures > len(delays):
                raise TransferError(f"{target.name} could not be downloaded: {error}") from error
        except OSError as error:
            raise TransferError(f"{target} can't be written: {error.strerror}") from error
        sleep(jitter(delays[max(failures - 1, 0)]))


def _fetch(open_at: Opener, target: Path, progress: Progress) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    begun = next(iter(sorted(target.parent.glob(escape(target.name) + ".*.part"))), None)
    start = begun.stat().st_size if begun else 0
    # Without compression, because a range counts the bytes of the object itself.
    headers = {"Accept-Encoding": "identity"}
    with open_at(headers | ({"Range": f"bytes={start}-"} if begun and start else {})) as response:
        part = target.with_name(f"{target.name}.{_mark(response)}.part")
        resumed = response.status_code == 206 and begun == part and not part.name.endswith(f".{_UNMARKED}.part")
        if begun is not None and not resumed:
            begun.unlink(missing_ok=True)
        if (response.status_code == 206 and not resumed) or response.status_code == 416:
            # The .part file belongs to another object, or is complete: the next try starts again.
            raise Unavailable("the object has changed meanwhile")
        if resumed:
            progress(start)
        with part.open("ab" if resumed else "wb") as file:
            # Blocks as they arrive: with chunks of a fixed size, an interruption would lose the incomplete chunk.
            for block in response.iter_bytes():
                file.write(block)
                progress(len(block))
            file.flush()
            os.fsync(file.fileno())
    os.replace(part, target)


def _mark(response: httpx.Response) -> str:
    """A short mark for the name of a file, which differs between versions of an object."""
    tag = response.headers.get("etag") or response.headers.get("last-modified") or ""
    return hashlib.sha256(tag.encode()).hexdigest()[:8] if tag else _UNMARKED


def presigned(http: httpx.Client, url: str) -> Opener:
    """The opener of a presigned URL.

    Raises (when it is used):
        TransferError: the store refused.
        Unavailable: another try may succeed.
    """

    @contextmanager
    def opened(headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        try:
            with http.stream("GET", url, headers=dict(headers)) as response:
                if response.status_code >= 400 and response.status_code != 416:
                    response.read()
                    if response.status_code >= 500:
                        raise Unavailable(_refusal(response))
                    raise TransferError(f"the store refused the download: {_refusal(response)}")
                yield response
        except httpx.TransportError as error:
            raise Unavailable(store_unreachable(url, error)) from error

    return opened


def store_unreachable(url: str, error: Exception) -> str:
    """'can't reach the store at HOST', without the query, which is a signature."""
    parts = urlsplit(url)
    return f"can't reach the store at {parts.scheme}://{parts.netloc} ({error or type(error).__name__})"


def _refusal(response: httpx.Response) -> str:
    text = response.text
    if "<Message>" in text:
        return text.partition("<Message>")[2].partition("</Message>")[0]
    return f"{response.status_code} {response.reason_phrase}"
