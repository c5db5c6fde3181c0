"""Thins a flood of points, so that a program's metrics can't overload the disk, the network or the API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from weft_trainer.metrics.records import Record

_Key = tuple[str, tuple[str, ...]]

TOTAL = 1_000_000
"""Points that one learner may send."""
BURST = 200_000
"""Points that it may send as fast as it likes; in the long run RATE a second."""
RATE = 1_000.0
_HELD = 1_000
"""How many groups of names have their last values kept when points are left out."""
_TELL = 60.0


class Limiter:
    """Lets the program's records through while there is room. Of the records that it leaves out, it keeps the last for
    each set of names. This record goes through when there is room again, or at the end. A curve therefore may lose
    points, but never its last one.

    Args:
        say: writes a line into the job's log.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        total: int = TOTAL,
        burst: float = BURST,
        rate: float = RATE,
    ) -> None:
        self._say = say
        self._clock = clock
        self._left = total
        self._total = total
        self._burst = self._tokens = float(burst)
        self._rate = rate
        self._at = clock()
        self._held: dict[_Key, Record] = {}
        self._dropped = 0
        self._told_at: float | None = None
        self._told_full = False

    @property
    def room(self) -> int:
        """Points for which there is room now."""
        self._refill()
        return int(min(self._tokens, self._left))

    def admit(self, records: Iterable[Record]) -> list[Record]:
        """The records that may go on, in order."""
        self._refill()
        admitted: list[Record] = []
        for record in records:
            if record.kind == "system":
                admitted.append(record)
                continue
            key = (record.group, tuple(record.values))
            cost = len(record.values)
            if cost <= min(self._tokens, self._left):
                self._tokens -= cost
                self._left -= cost
                self._held.pop(key, None)  # this one is newer
                admitted.append(record)
                continue
            self.left_out(cost)
            if key in self._held or len(self._held) < _HELD:
                self._held[key] = record
        return admitted

    def left_out(self, points: int) -> None:
        """Count ``points`` that were left out, here or before they came here."""
        self._dropped += points
        if self._left <= 0:
            if not self._told_full:
                self._told_full = True
                self._say(
                    f"weft: metrics: this learner has logged its {self._total:,} points; of those that follow, only "
                    "the last values are kept"
                )
            return
        now = self._clock()
        if self._told_at is None or now - self._told_at >= _TELL:
            self._told_at = now
            self._say(
                f"weft: metrics come too fast: {self._dropped:,} points were left out so far (more than "
                f"{self._burst:,.0f} at once, then {self._rate:,.0f} a second, are thinned)"
            )

    def finish(self) -> list[Record]:
        """The last values of the points that were left out."""
        if self._dropped:
            self._say(f"weft: metrics: {self._dropped:,} points were left out in all; the last values are there")
        held, self._held = list(self._held.values()), {}
        return sorted(held, key=lambda record: record.time)

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
