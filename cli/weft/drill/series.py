"""The metrics of two trainings side by side: where the second leaves the course of the first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from weft.drill.record import Of, Recording, Sample

_NOISE = 3.0
"""A difference counts if it is larger than so many times the largest difference of two undisturbed trainings."""
_SPEED = re.compile(
    r"(^|[/_.-])(time|seconds|secs?|ms|duration|elapsed|eta|throughput|speed|fps|memory|mem|\w*per_s(ec(ond)?)?)($|[/_.-])",
    re.IGNORECASE,
)
_LOOK = 5
"""The steps of a resume that are looked for among the undisturbed ones, at most."""


@dataclass(frozen=True)
class Parting:
    """Where a metric of a learner leaves its undisturbed course; ``step`` None: it never does.

    Attributes:
        position: the number of points of the attempt before this step.
        wanted: the undisturbed value.
        found: the value in the disturbed training.
    """

    name: str
    learner: int
    points: int
    step: int | None = None
    attempt: int = 0
    position: int = 0
    wanted: float = math.nan
    found: float = math.nan

    @property
    def of(self) -> Of:
        return Of(self.name, self.learner)

    def __str__(self) -> str:
        learner = f" of learner {self.learner}" if self.learner > 1 else ""
        values = f"{self.found:.6g} instead of {self.wanted:.6g}"
        return f"{self.name}{learner} differs from step {self.step} on, in attempt {self.attempt} ({values})"


@dataclass(frozen=True)
class Series:
    """A metric of a learner: undisturbed by step, and disturbed by attempt and step."""

    of: Of
    wanted: Mapping[int, Sample]
    found: Mapping[int, Mapping[int, Sample]]
    tolerance: float
    noise: float = 0.0
    """The largest difference of two undisturbed trainings."""

    @cached_property
    def order(self) -> Sequence[int]:
        return sorted(self.wanted)

    @cached_property
    def place(self) -> Mapping[int, int]:
        return {step: place for place, step in enumerate(self.order)}

    @property
    def relative_noise(self) -> float:
        largest = max((abs(value) for value, _ in self.wanted.values() if math.isfinite(value)), default=0.0)
        return self.noise / largest if largest else 0.0

    def begin(self, attempt: int) -> int | None:
        return min(self.found.get(attempt) or (), default=None)

    def steps_before(self, attempt: int) -> set[int]:
        return {step for n, steps in self.found.items() if n < attempt for step in steps}

    def common(self, attempt: int) -> list[int]:
        """The steps of an attempt that the undisturbed training has, too."""
        return [step for step in sorted(self.found.get(attempt, ())) if step in self.wanted]

    def parting(self) -> Parting:
        for attempt in sorted(self.found):
            for position, step in enumerate(self.common(attempt)):
                wanted, found = self.wanted[step].value, self.found[attempt][step].value
                if not self._same(wanted, found):
                    return Parting(*self.of, len(self.order), step, attempt, position, wanted, found)
        return Parting(*self.of, len(self.order))

    def shift(self, attempt: int) -> int | None:
        """By how many points the values of an attempt are shifted; None: they are other values, or too few to tell."""
        steps = self.common(attempt)[:_LOOK]
        values = [self.found[attempt][step].value for step in steps]
        if len(set(values)) < 2:
            return None
        places = [self.place[step] for step in steps]
        offsets = [offset for offset in range(-places[0], len(self.order) - places[-1]) if offset]
        for offset in sorted(offsets, key=abs):
            others = [self.wanted[self.order[place + offset]].value for place in places]
            if all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(others, values, strict=True)):
                return offset
        return None

    def _same(self, wanted: float, found: float) -> bool:
        if math.isnan(wanted) or math.isnan(found):
            return math.isnan(wanted) and math.isnan(found)
        return wanted == found or abs(wanted - found) <= max(self.tolerance * abs(wanted), _NOISE * self.noise)


def fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def pair(
    undisturbed: Recording, disturbed: Recording, second: Recording | None, metrics: Sequence[str], tolerance: float
) -> dict[Of, Series]:
    """The metrics that both trainings have, and whose steps have one value each. ``metrics``: names; empty: all but
    those of time and speed."""
    pairs = {}
    ambiguous = undisturbed.restarting | disturbed.restarting
    for of, curve in sorted(undisturbed.curves.items()):
        chosen = fits(of.name, metrics) if metrics else not _SPEED.search(of.name)
        if not chosen or of not in disturbed.curves or of.name in ambiguous:
            continue
        wanted, noise = _merged(curve), 0.0
        if second is not None and of in second.curves:
            other = _merged(second.curves[of])
            gaps = (abs(wanted[step].value - other[step].value) for step in wanted if step in other)
            noise = max((gap for gap in gaps if math.isfinite(gap)), default=0.0)
        pairs[of] = Series(of, wanted, disturbed.curves[of], tolerance, noise)
    return pairs


def leading(pairs: Mapping[Of, Series], data: Sequence[str]) -> dict[int, Series]:
    """For each learner the metric that shows its steps: that with the most points, best a loss."""

    def rank(series: Series) -> tuple[int, bool, bool]:
        return len(series.wanted), "loss" in series.of.name.lower(), not fits(series.of.name, data)

    learners = sorted({of.learner for of in pairs})
    return {n: max((series for of, series in pairs.items() if of.learner == n), key=rank) for n in learners}


def _merged(curve: Mapping[int, Mapping[int, Sample]]) -> dict[int, Sample]:
    merged: dict[int, Sample] = {}
    for attempt in sorted(curve):
        merged |= curve[attempt]
    return merged
