"""The stacks that py-spy has seen, as text: a stack per line, and how often it was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

_MAIN = ": MainThread"


def hottest(text: str, most: int) -> list[tuple[str, float]]:
    """The calls in which the main thread was most often, with their shares of its time."""
    counted: Counter[str] = Counter()
    for frames, times in _stacks(text):
        if frames[0].endswith(_MAIN):
            counted[frames[-1]] += times
    total = counted.total()
    return [(call, times / total) for call, times in counted.most_common(most)]


def _stacks(text: str) -> Iterator[tuple[list[str], int]]:
    for line in text.splitlines():
        stack, _, times = line.rpartition(" ")
        frames = stack.split(";")
        if len(frames) > 1 and times.isdecimal():
            yield frames, int(times)
