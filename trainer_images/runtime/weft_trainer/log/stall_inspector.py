"""Horovod's stall inspector: every minute, it logs the tensors that some ranks have submitted and others have not.

Its lines show that the gang waits, so they are no sign of life. They come for as long as the gang waits, from rank 0:

    [… W …/stall_inspector.cc:107] One or more tensors were submitted to be reduced, … for more than 60 seconds. …
    Missing ranks:
    1: [allreduce.gradient, allreduce.bias]
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from weft_trainer.log.lines import Line

_WARNING = re.compile(
    r"One or more tensors were submitted to be reduced, .* for more than (?P<seconds>\d{1,9}) seconds"
)
_MISSING = "Missing ranks:"
_RANK = re.compile(r"(?P<rank>\d{1,6})!?: \[(?P<tensors>.*)\]")
_MOST_RANKS, _MOST_TENSORS, _LONGEST = 1024, 16, 120
_LATE = 10.0
"""Seconds."""


class StallInspector:
    """What the inspector has logged, of all processes of a learner."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._speaking: set[str] = set()
        """The sources in which it is just listing ranks."""
        self._missing: dict[int, list[str]] = {}
        self._until = 0.0

    def read(self, lines: Sequence[Line]) -> bool:
        """Whether there are lines that are not the inspector's."""
        others = [line for line in lines if not self._is_its(line)]
        return bool(others)

    def missing(self) -> dict[int, list[str]]:
        """By rank, the tensors that it has not submitted while others wait for it, if that was said just now."""
        return dict(self._missing) if self._clock() < self._until else {}

    def _is_its(self, line: Line) -> bool:
        text = line.text.removeprefix(line.source)
        if found := _WARNING.search(text):
            self._speaking.add(line.source)
            self._missing = {}
            self._until = self._clock() + 3 * int(found["seconds"]) + _LATE
            return True
        if line.source not in self._speaking:
            return False
        if found := _RANK.fullmatch(text):
            if len(self._missing) < _MOST_RANKS:
                names = found["tensors"].removesuffix(" ...").removesuffix(",").split(", ")
                self._missing[int(found["rank"])] = [name[:_LONGEST] for name in names[:_MOST_TENSORS]]
            return True
        if text == _MISSING:
            return True
        self._speaking.discard(line.source)
        return False
