"""What is known of a training: its metrics by attempt, its attempts, and what disturbed them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from weft.resources.metrics import Point

Kind = Literal["kill", "kill in a save", "halt"]
KINDS: tuple[Kind, ...] = ("kill", "kill in a save", "halt")


class Sample(NamedTuple):
    """A reported value, and its time (seconds since the epoch, by the learner's clock)."""

    value: float
    time: float


class Of(NamedTuple):
    """A metric of a learner."""

    name: str
    learner: int


Curve = Mapping[int, Mapping[int, Sample]]
"""Attempt → step → sample."""


@dataclass(frozen=True)
class Try:
    """An attempt of the job. ``said`` is the end of its log; ``restored``: whether it began with a checkpoint."""

    n: int
    outcome: str | None
    reason: str = ""
    said: str = ""
    restored: bool = True


@dataclass(frozen=True)
class Recording:
    """A training. ``savers`` are the learners that have stored checkpoints, ``restarting`` the metrics of
    :func:`restarting`."""

    curves: Mapping[Of, Curve]
    tries: tuple[Try, ...] = ()
    seconds: float = 0.0
    learners: int = 1
    savers: frozenset[int] = frozenset({1})
    restarting: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Disturbance:
    """What ended an attempt.

    Attributes:
        attempt: the number of the attempt that it ended.
        learner: the learner that was killed; of a halt, 1.
        at: when (seconds since the epoch, by the learner's clock).
        saves: when each save of the attempt was complete.
    """

    kind: Kind
    attempt: int
    learner: int = 1
    at: float = 0.0
    saves: tuple[float, ...] = field(default=())


def curves_of(points: Iterable[Point]) -> dict[Of, dict[int, dict[int, Sample]]]:
    """The points by metric, learner, attempt and step. Of a step that occurs twice in an attempt, the newest counts."""
    found: dict[Of, dict[int, dict[int, Sample]]] = {}
    for point in points:
        curve = found.setdefault(Of(point.name, point.learner), {})
        curve.setdefault(point.attempt, {})[point.step] = Sample(point.value, point.time.timestamp())
    return found


def restarting(points: Iterable[Point]) -> frozenset[str]:
    """The names of the metrics whose steps begin again within an attempt, so that a step has several values. Keras'
    TensorBoard, for example, counts the iterations of an optimizer, and a program may have an optimizer for each phase.
    """
    steps: dict[tuple[str, int, int], dict[int, None]] = {}  # in the order of their first occurrence
    found = set()
    for point in sorted(points, key=lambda point: point.time):
        seen = steps.setdefault((point.name, point.learner, point.attempt), {})
        if point.step in seen and point.step != next(reversed(seen)):
            found.add(point.name)
        seen[point.step] = None
    return frozenset(found)
