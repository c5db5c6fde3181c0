"""Reads all sources of metrics of a learner while its program runs."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Protocol

from weft_trainer.growing import Found

_EVERY = 0.5
_SHARE = 4
"""The pause after a read is at least this many times as long as the processor time that the read took."""


class Source(Protocol):
    def read(self, found: Sequence[Found]) -> bool:
        """Read new values. Returns whether there may be more already.

        Args:
            found: the files below the folders that are watched.
        """


class Collector:
    """One thread that reads every source again and again.

    Args:
        find: the files below the folders that are watched.
        say: writes a line into the job's log.
    """

    def __init__(
        self, sources: Sequence[Source], find: Callable[[], Sequence[Found]], say: Callable[[str], None]
    ) -> None:
        self._sources = sources
        self._find = find
        self._say = say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Read the rest, for at most ``seconds``; then stop."""
        end = time.monotonic() + seconds
        self._stop.set()
        self._thread.join(seconds)
        more = True
        while more and time.monotonic() < end and not self._thread.is_alive():
            more = self._read_all()
        if more:
            self._say("weft: metrics: there is more to read than a learner's end has time for: the rest is lost")

    def _run(self) -> None:
        pause = _EVERY
        while not self._stop.wait(pause):
            began, busy = time.monotonic(), time.thread_time()
            self._read_all()
            pause = max(_EVERY, _SHARE * (time.thread_time() - busy), time.monotonic() - began)

    def _read_all(self) -> bool:
        found = self._find()
        more = [self._read(source, found) for source in self._sources]
        return any(more)

    def _read(self, source: Source, found: Sequence[Found]) -> bool:
        try:
            return source.read(found)
        except Exception:  # no training ends for its metrics
            traceback.print_exc()
            return False
