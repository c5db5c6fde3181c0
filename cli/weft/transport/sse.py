"""Following a stream of server-sent events across lost connections, without lost or repeated events.

The server numbers its events (``id:``). After an interruption, the follower reconnects with ``Last-Event-ID``. It drops
events whose numbers it has already seen, in case the server begins too early. An event that was received only in part
is discarded: it has no closing blank line, so its number does not count as seen.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from weft.errors import Unavailable
from weft.transport.http import Query, Transport, jitter

SILENCE = httpx.Timeout(45.0, connect=5.0)
"""The server sends at least a comment every 15 s; a longer silence means that the connection is lost."""
PATIENCE = 600.0
"""Seconds without contact after which the follower gives up."""
_DELAYS = (0.1, 0.3, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class ServerEvent:
    """One event. ``id`` is None if the server gave no number."""

    id: int | None
    name: str
    data: dict[str, Any]


class Follower:
    """Iterates over the events of an SSE resource, up to and including its ``end`` event.

    Args:
        transport: the connection to the server.
        path: the resource.
        params: the query.
        after: the number of the last known event; None: ``params`` say where to begin.
        finished: called if the server closes the stream without ``end``; True ends the iteration.
        on_trouble: called with the error whenever the connection is lost, before the next try.
        patience: seconds without contact after which :class:`Unavailable` is raised.

    Raises:
        Unavailable: no contact for ``patience`` seconds.
        ApiError: the server refused, for example because the job has been deleted.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        *,
        params: Query | None = None,
        after: int | None = None,
        finished: Callable[[], bool] = lambda: False,
        on_trouble: Callable[[Unavailable], None] = lambda error: None,
        patience: float = PATIENCE,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._path = path
        self._params = params
        self._last = after
        self._finished = finished
        self._on_trouble = on_trouble
        self._patience = patience
        self._sleep = sleep
        self._clock = clock

    def __iter__(self) -> Iterator[ServerEvent]:
        contact = self._clock()
        failures = 0
        while True:
            seen = False
            try:
                for event in self._connection():
                    contact, failures, seen = self._clock(), 0, True
                    yield event
                    if event.name == "end":
                        return
                if self._finished():
                    return
                failures = 0 if seen else failures + 1
            except Unavailable as error:
                if self._clock() - contact > self._patience:
                    raise
                self._on_trouble(error)
                failures += 1
            if failures:
                self._sleep(jitter(_DELAYS[min(failures, len(_DELAYS)) - 1]))

    def _connection(self) -> Iterator[ServerEvent]:
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if self._last is not None:
            headers["Last-Event-ID"] = str(self._last)
        with self._transport.stream(
            "GET", self._path, params=self._params, headers=headers, timeout=SILENCE
        ) as response:
            for event in parse_events(response.iter_bytes()):
                if event.id is not None:
                    if self._last is not None and event.id <= self._last:
                        continue
                    self._last = event.id
                yield event


def parse_events(chunks: Iterable[bytes]) -> Iterator[ServerEvent]:
    """The events in a stream of the type ``text/event-stream``; an unfinished event at the end is dropped."""
    name, data, number = "message", list[str](), None
    for line in _lines(chunks):
        if not line:
            if data:
                yield ServerEvent(number, name, _decoded("\n".join(data)))
            name, data, number = "message", [], None
            continue
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if key == "event":
            name = value
        elif key == "data":
            data.append(value)
        elif key == "id":
            number = int(value) if value.isdecimal() else None


def _decoded(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"value": value}


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    # Not by httpx's iter_lines, which also splits at U+2028 and the like; these may occur in a log line.
    rest = b""
    for chunk in chunks:
        rest += chunk
        # A lone \r at the end may be the first half of \r\n.
        complete = rest.replace(b"\r\n", b"\n")
        if complete.endswith(b"\r"):
            complete, held = complete[:-1], b"\r"
        else:
            held = b""
        *lines, tail = complete.replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            yield line.decode("utf-8", errors="replace")
        rest = tail + held
