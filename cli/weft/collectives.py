"""Which ranks enter their collectives last, by what PyTorch's flight recorder has kept in each of them.

A collective ends for all ranks together, so the steps of all ranks take the same time. What tells a slow rank from the
ranks that wait for it is the time at which each enters.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

_ENTRY = re.compile(r"(?P<group>\S+) (?P<number>\d{1,18}) \S+ (?P<at>\d{1,20})", re.ASCII)


@dataclass(frozen=True)
class Lateness:
    """How late a rank is.

    Attributes:
        last: the share of the collectives that it entered last, from 0 to 1.
        seconds: the median time from the first rank's entry to its own.
    """

    rank: int
    last: float
    seconds: float


@dataclass(frozen=True)
class Collectives:
    """The ranks of a process group, the latest first, by ``count`` collectives that all of them have entered."""

    group: str
    count: int
    ranks: tuple[Lateness, ...]


def latest(texts: Mapping[int, str]) -> Collectives | None:
    """Compare the ranks in the process group that has the most of them.

    Args:
        texts: by rank, the file of the kind ``collectives``.

    Returns:
        None: no collective is known of two ranks. A group's first collective counts only if there is no other: ranks
        enter it as soon as they have started.
    """
    groups: dict[str, dict[int, dict[int, int]]] = defaultdict(dict)
    for rank, text in texts.items():
        for line in text.splitlines():
            if entry := _ENTRY.fullmatch(line):
                groups[entry["group"]].setdefault(rank, {})[int(entry["number"])] = int(entry["at"])
    shared = {
        group: sorted(set.intersection(*map(set, ranks.values()))) for group, ranks in groups.items() if len(ranks) > 1
    }
    if not any(shared.values()):
        return None
    group = max((group for group in shared if shared[group]), key=lambda name: (len(groups[name]), len(shared[name])))
    times = groups[group]
    numbers = [number for number in shared[group] if number > 1] or shared[group]
    first = {number: min(entries[number] for entries in times.values()) for number in numbers}
    final = {number: max(times, key=lambda rank: times[rank][number]) for number in numbers}
    ranks = [
        Lateness(
            rank,
            sum(final[number] == rank for number in numbers) / len(numbers),
            median(entries[number] - first[number] for number in numbers) / 1e9,
        )
        for rank, entries in times.items()
    ]
    return Collectives(group, len(numbers), tuple(sorted(ranks, key=lambda found: (-found.seconds, found.rank))))
