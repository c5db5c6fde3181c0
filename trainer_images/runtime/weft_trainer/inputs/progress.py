"""The progress of a download, in the job's log, when it takes long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST = 5.0
"""Seconds. A faster download prints nothing."""
PAUSE = 10.0
"""Seconds between two lines, at least. In a download that takes hours, a tenth of the time so far."""
_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


class Progress:
    """Counts objects and bytes. Thread-safe.

    Args:
        what: the beginning of each line: what is downloaded.
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
        """So many more objects are known to be there."""
        with self._lock:
            self._listed += objects

    def expect(self, objects: int, size: int) -> None:
        """So many more objects are to be here in the end, of so many bytes together."""
        with self._lock:
            self._objects += objects
            self._size += size

    def came(self, size: int) -> None:
        """So many bytes more were downloaded."""
        with self._lock:
            self._fetched += size

    def brought(self, objects: int = 1) -> None:
        """So many more objects are whole, whose bytes :meth:`came`."""
        with self._lock:
            self._done += objects

    def cached(self, objects: int, size: int) -> None:
        """So many more objects, of so many bytes, were in the cache, or another process has put them there."""
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
            unit, name = _unit(self._size)
            words = f"{self._what}: {came / unit:,.1f} of {self._size / unit:,.1f} {name}"
            words += f", {self._done:,} of {self._objects:,} objects, {amount(speed)}/s"
            return words + (f", {_duration((self._size - came) / speed)} left" if speed else "")

    def _in_all(self, now: float) -> str:
        with self._lock:
            seconds = now - self._begun
            objects = f"{self._objects:,} object{'' if self._objects == 1 else 's'}"
            words = f"{self._what}: all here: {amount(self._size)}, {objects} in {_duration(seconds)}"
            words += f", {amount(self._fetched / seconds)}/s"
            return words + (f"; {self._cached:,} of them from the node's cache" if self._cached else "")


def amount(size: float) -> str:
    unit, name = _unit(size)
    return f"{size / unit:,.0f} {name}" if unit == 1 or size / unit >= 100 else f"{size / unit:,.1f} {name}"


def _unit(size: float) -> tuple[int, str]:
    return next((unit for unit in _UNITS if size >= unit[0]), _UNITS[-1])


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
