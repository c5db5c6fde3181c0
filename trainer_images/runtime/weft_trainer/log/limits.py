"""The limits of a learner's log: how much of a program's output goes to the API."""

from __future__ import annotations

import time
from collections.abc import Callable

from weft_trainer.spec import LogSpec

_SHUT_SECONDS = 1.0
"""Lines are left out in runs of this length, not here and there."""


class Gate:
    """Open as long as the program keeps to its rate, or has not used up its burst; then shut for a while.

    Not thread-safe: the writer of the log holds a lock.
    """

    def __init__(self, spec: LogSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._clock = clock
        self._paid_until = float("-inf")

    def pay(self, lines: int, size: int) -> float:
        """Count lines that have gone through. Returns the seconds for which to shut the gate now; 0: it stays open."""
        spec = self._spec
        cost = max(
            lines / spec.lines_per_second if spec.lines_per_second else 0.0,
            size / spec.bytes_per_second if spec.bytes_per_second else 0.0,
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
            f"{spec.lines_per_second:,.0f} lines" if spec.lines_per_second else "",
            f"{size_words(spec.bytes_per_second)}" if spec.bytes_per_second else "",
        ]
        return f"this learner may log {' and '.join(filter(None, rates))} a second"


def size_words(size: float) -> str:
    """Bytes, for a user: '1.5 MiB'."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
