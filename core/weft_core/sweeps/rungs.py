"""Successive halving: which trial goes on to its next rung. A function of how the rungs stand, and of nothing else.

The search ``asha`` has one bracket, whose trials begin at the lowest rung. ``hyperband`` has a bracket for each rung,
so that some trials run further before they are compared. The numbers of a bracket's trials follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft_core.manifest.sweep_models import Rungs, Sweep


@dataclass(frozen=True)
class Bracket:
    """Trials that begin at the same rung, and are compared with each other."""

    first: int
    """The rung."""
    numbers: range
    """Of the trials."""


@dataclass(frozen=True)
class Standing:
    """A rung of a bracket as it stands."""

    running: int
    """Trials that run to its end."""
    waiting: int | None
    """The trial that goes on next: the best that waits here, if it is among the best of those that have ended here or
    have gone on, one in ``reduction``. Trials that have failed count as ended, and are never among the best."""


def brackets(sweep: Sweep) -> list[Bracket]:
    """The brackets, in the order of their first rungs."""
    rungs = sweep.rungs
    assert rungs is not None
    if sweep.search == "asha":
        return [Bracket(0, range(sweep.trials))]
    made, start = [], 0
    for first, size in enumerate(_sizes(len(rungs.ends), rungs.reduction, sweep.trials)):
        made.append(Bracket(first, range(start, start + size)))
        start += size
    return made


def _sizes(count: int, reduction: int, trials: int) -> list[int]:
    """Hyperband's shares of the trials: all brackets take about the same time in all. None is empty."""
    shares = [reduction ** (count - 1 - first) * count / (count - first) for first in range(count)]
    rest = trials - count
    exact = [rest * share / sum(shares) for share in shares]
    sizes = [1 + int(size) for size in exact]
    by_remainder = sorted(range(count), key=lambda first: (int(exact[first]) - exact[first], first))
    for first in by_remainder[: trials - sum(sizes)]:
        sizes[first] += 1
    return sizes


def bracket_of(sweep: Sweep, number: int) -> Bracket:
    """The bracket of a trial."""
    return next(bracket for bracket in brackets(sweep) if number in bracket.numbers)


def promotion(rungs: Rungs, standings: Sequence[Standing], begun: bool) -> int | None:
    """The number of the trial of a bracket that goes on to its next rung; None: no trial does.

    Args:
        standings: of the bracket's rungs, its first one first.
        begun: whether all trials of the bracket have begun.
    """
    found = None
    settled = begun  # no trial comes to this rung any more
    for standing in standings[:-1]:
        settled = settled and standing.running == 0
        if standing.waiting is None:
            continue
        if rungs.sync:
            return standing.waiting if settled else None
        found = standing.waiting  # trials of higher rungs first: they have the best chance to be the result
    return found
