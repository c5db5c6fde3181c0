"""Looks after all sources of metrics of a learner while its program runs."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Protocol

from weft_trainer.metrics.growing import Found

_EVERY = 0.5
_SHARE = 4
"""A look is followed by a pause of so many times the processor time that it took, at least."""


class Source(Protocol):
    def look(self, found: Sequence[Found]) -> bool:
        """Take what is new; whether there may be more already. ``found``: files below the folders that are watched."""


class Collector:
    """One thread that looks at every source again and again.

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
        """Take all there is, as far as that is done within ``seconds``; then stop."""
        end = time.monotonic() + seconds
        self._stop.set()
        self._thread.join(seconds)
        more = True
        while more and time.monotonic() < end and not self._thread.is_alive():
            more = self._look()
        if more:
            self._say("weft: metrics: there is more to read than a learner's end has time for: the rest is lost")

    def _run(self) -> None:
        pause = _EVERY
        while not self._stop.wait(pause):
            began, busy = time.monotonic(), time.thread_time()
            self._look()
            pause = max(_EVERY, _SHARE * (time.thread_time() - busy), time.monotonic() - began)

    def _look(self) -> bool:
        found = self._find()
        more = [self._ask(source, found) for source in self._sources]
        return any(more)

    def _ask(self, source: Source, found: Sequence[Found]) -> bool:
        try:
            return source.look(found)
        except Exception:  # no training ends for its metrics
            traceback.print_exc()
            return False
