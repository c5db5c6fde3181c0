"""Waiting for the end of a job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from weft.errors import NotFound, Unavailable, WaitTimeout
from weft.models import TERMINAL
from weft.resources.job_files import job_path
from weft.transport.http import Transport
from weft.transport.sse import PATIENCE

T = TypeVar("T")

_HELD = 20.0
"""Seconds for which the server holds its answer while the job goes on. The transport and proxies have more patience."""
_MOST_HELD = 32
"""Requests that are held at the same time. Each has a connection, and the other requests need some, too."""
_QUICKEST, _SLOWEST = 0.1, 2.0
"""Seconds between two requests that are not held."""


class Ends:
    """Waits for the ends of jobs. May be used by several threads."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._places = threading.BoundedSemaphore(_MOST_HELD)

    def wait(self, job_id: str, timeout: float | None, get: Callable[[str], T]) -> T:
        """Block until the job has ended; returns ``get(job_id)``. Lost connections are restored.

        Raises:
            WaitTimeout: the job has not ended within ``timeout`` seconds.
            NotFound: the job has been deleted.
            Unavailable: no contact for ten minutes.
        """
        begun = contact = time.monotonic()
        deadline = None if timeout is None else begun + timeout
        while True:
            asked = time.monotonic()
            with self._place() as free:
                held = 0.0 if not free else _HELD if deadline is None else min(_HELD, max(0.0, deadline - asked))
                try:
                    if self._has_ended(job_id, held):
                        return get(job_id)
                    contact = time.monotonic()
                except Unavailable:
                    if time.monotonic() - contact > PATIENCE:
                        raise
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise WaitTimeout(f"job {job_id} has not ended within {timeout:g} s")
            if not held or now - asked < held:
                # The pauses grow: the end is noticed after at most a twentieth of the time that has passed.
                pause = min(max(_QUICKEST, 0.05 * (now - begun)), _SLOWEST)
                time.sleep(pause if deadline is None else min(pause, deadline - now))

    def _has_ended(self, job_id: str, seconds: float) -> bool:
        """Whether the job has ended. While it has not, the server holds its answer for so many seconds."""
        query = {"wait": round(seconds, 3)}
        try:
            return bool(self._transport.json("GET", job_path(job_id, "end"), params=query, holds="ended")["ended"])
        except NotFound:  # there is no such job, or the server is older than this request
            return self._transport.json("GET", job_path(job_id), holds="state")["state"] in TERMINAL

    @contextmanager
    def _place(self) -> Iterator[bool]:
        """Whether one more request may be held, until the context is left."""
        free = self._places.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._places.release()
