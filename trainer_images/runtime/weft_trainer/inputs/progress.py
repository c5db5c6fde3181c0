"""Prints the progress of a long download into the job's log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from weft_trainer import words

FIRST = 5.0
"""Seconds. A faster download prints nothing."""
PAUSE = 10.0
"""Seconds between two lines, at least. In a download that takes hours, a tenth of the time so far."""


class Progress:
    """Counts objects and bytes. Thread-safe.

    Args:
        what: the name of the download, with which each line begins.
        say: gets the lines.
    """

    def __init__(self, what: str, say: Callable[[str], None]) -> None:
        self._what = what
        self._say = say
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._listed = self._objects = self._size = 0
        self._done = self._fetched = 0
        self._cached = self._cached_bytes = 0
        self._before = (self._begun, 0)

    def listed(self, objects: int) -> None:
        """Count objects that were listed."""
        with self._lock:
            self._listed += objects

    def expect(self, objects: int, size: int) -> None:
        """Count objects that are to be downloaded, and their bytes."""
        with self._lock:
            self._objects += objects
            self._size += size

    def came(self, size: int) -> None:
        """Count bytes that were downloaded."""
        with self._lock:
            self._fetched += size

    def brought(self, objects: int = 1) -> None:
        """Count objects that are complete; :meth:`came` has counted their bytes."""
        with self._lock:
            self._done += objects

    def cached(self, objects: int, size: int) -> None:
        """Count objects, and their bytes, that were in the cache or that another process has put there."""
        with self._lock:
            self._done += objects
            self._cached += objects
            self._cached_bytes += size

    @contextmanager
    def spoken_of(self) -> Iterator[None]:
        """Print lines meanwhile, and a summary at the end if any line was printed."""
        ended = threading.Event()
        spoke = threading.Event()

        def speak() -> None:
            pause = FIRST
            while not ended.wait(pause):
                spoke.set()
                self._say(self._so_far(time.monotonic()))
                pause = max(PAUSE, (time.monotonic() - self._begun) / 10)

        thread = threading.Thread(target=speak, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if spoke.is_set():
            self._say(self._in_all(time.monotonic()))

    def _so_far(self, now: float) -> str:
        with self._lock:
            if not self._objects:
                return f"{self._what}: {self._listed:,} objects listed so far"
            came = min(self._fetched + self._cached_bytes, self._size)
            (then, before), self._before = self._before, (now, self._fetched)
            speed = (self._fetched - before) / max(now - then, 1e-3)
            line = f"{self._what}: {words.size(came)} of {words.size(self._size)}"
            line += f", {self._done:,} of {words.count(self._objects, 'object')}, {words.size(speed)}/s"
            return line + (f", {words.duration(round((self._size - came) / speed))} left" if speed else "")

    def _in_all(self, now: float) -> str:
        with self._lock:
            seconds = now - self._begun
            objects = words.count(self._objects, "object")
            line = f"{self._what}: all here: {words.size(self._size)}, {objects} in {words.duration(round(seconds))}"
            line += f", {words.size(self._fetched / seconds)}/s"
            return line + (f"; {self._cached:,} of them from the node's cache" if self._cached else "")
