"""How often learners report: as often as they like, until the server has more reports than it can take in.

A gang of a thousand learners with a line a second sends more reports than one process of the API can answer. They would
wait for each other, and all other callers for them. A report with the lines of several seconds costs little more than
a report with one line, so a busy server asks for pauses. It is busy if many reports are under way and the process uses
most of a core. The first condition keeps a few learners from pauses, however slow the machine is; the second lets a
fast machine take in all that it can. A process that does not get most of a core is busy if far too many are under way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from weft_api.context import Shared

_MANY, _FEW = 16, 8
"""Reports that are under way at a time, on average: too many, and so few that there is room for more."""
_FAR_TOO_MANY = 64
_BUSY, _CALM = 0.6, 0.5
"""Cores that the process uses, likewise. Python code uses one at most, and what is left of it is for other callers."""
_WINDOW = 0.5
"""Seconds for one average."""
_UP, _DOWN = 1.5, 0.9
_LEAST = 0.0005
"""Seconds a learner: a gang of a thousand pauses for half a second."""
_LONGEST = 8.0
"""Seconds. A learner counts as silent only after ``timings.silence``, which is 30."""
_SHORTEST_SHARE, _LONGEST_SHARE = 0.25, 1.25
"""Of the gang's pause: the bounds of one learner's. Learners that start together report together at first."""


class Pace:
    """Used from the event loop only. Each attempt may send the same number of reports a second, so a large gang pauses
    long before a small job does."""

    def __init__(self) -> None:
        self._under_way = 0
        self._met: list[int] = []
        """How many other reports each report of this window met."""
        self._since = time.monotonic()
        self._used = time.process_time()
        """The processor time of the process when this window began, in seconds."""
        self._each = 0.0
        """Seconds of pause for each learner of a gang."""
        self._last: dict[str, float] = {}
        """By attempt, until when the last learner that got a pause has it."""

    @contextmanager
    def report(self) -> Iterator[None]:
        """While a report is taken in."""
        self._met.append(self._under_way)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def pause(self, attempt: str, learners: int) -> float:
        """Seconds until the next report of a learner.

        The pauses of a gang end one after the other, in equal intervals. With pauses of the same length, learners that
        have reported together would do so again, and wait for each other each time.

        Args:
            attempt: a name of the attempt.
            learners: of the gang.
        """
        now = time.monotonic()
        if now - self._since >= _WINDOW and self._met:
            used = time.process_time()
            self._adapt(sum(self._met) / len(self._met), (used - self._used) / (now - self._since))
            self._met, self._since, self._used = [], now, used
            self._last = {name: until for name, until in self._last.items() if self._each and until > now}
        mean = min(learners * self._each, _LONGEST)
        if not mean:
            return 0.0
        until = max(self._last.get(attempt, now) + mean / learners, now + _SHORTEST_SHARE * mean)
        self._last[attempt] = min(until, now + _LONGEST_SHARE * mean)
        return round(self._last[attempt] - now, 3)

    def _adapt(self, met: float, cores: float) -> None:
        """
        Args:
            met: how many other reports a report of this window met, on average.
            cores: that the process used in this window.
        """
        if met > _FAR_TOO_MANY or (met > _MANY and cores > _BUSY):
            self._each = min(max(self._each * _UP, _LEAST), _LONGEST)
        elif met < _FEW or cores < _CALM:
            self._each = self._each * _DOWN if self._each > _LEAST else 0.0


PACE: Shared[Pace] = Shared(lambda _: Pace())
