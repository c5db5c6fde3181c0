"""The limits of a learner's log: how much of a program's output goes to the API."""

from __future__ import annotations

import time
from collections.abc import Callable

from weft_trainer.spec import LogSpec
from weft_trainer.words import count, size

_SHUT_SECONDS = 1.0
"""Lines are left out for at least this long at a time, so that the gaps are few."""


class Gate:
    """Open as long as the program keeps to its rate, or has not used up its burst; then shut for a while.

    Not thread-safe: the writer of the log holds a lock.
    """

    def __init__(self, spec: LogSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._clock = clock
        self._paid_until = float("-inf")

    def pay(self, lines: int, byte_count: int) -> float:
        """Count lines that have gone through. Returns the seconds for which to shut the gate now; 0: it stays open."""
        spec = self._spec
        cost = max(
            lines / spec.lines_per_second if spec.lines_per_second else 0.0,
            byte_count / spec.bytes_per_second if spec.bytes_per_second else 0.0,
        )
        now = self._clock()
        self._paid_until = max(self._paid_until, now) + cost
        over = self._paid_until - now - spec.burst_seconds
        return over + min(_SHUT_SECONDS, spec.burst_seconds) if over > 0 else 0.0

    @property
    def words(self) -> str:
        """The limit, for a user."""
        spec = self._spec
        rates = [
            count(round(spec.lines_per_second), "line") if spec.lines_per_second else "",
            size(spec.bytes_per_second) if spec.bytes_per_second else "",
        ]
        return f"this learner may log {' and '.join(filter(None, rates))} a second"
