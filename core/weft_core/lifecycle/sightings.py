"""The meaning of a sighting for a learner. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from weft_core.engine import LearnerObservation, LearnerState, Observation
from weft_core.lifecycle.view import View


def missing(view: View, rank: int) -> bool:
    """Whether the engine has answered and knows no living process of this learner: it exited, is absent or cut off."""
    learner = observed(view, rank)
    return learner.state is LearnerState.EXITED or learner.unreachable if learner else absent(view, rank)


def unreachable(view: View, rank: int) -> bool:
    """Whether the engine can't reach this learner's node: the learner may live, or not."""
    learner = observed(view, rank)
    return learner is not None and learner.unreachable and learner.state is not LearnerState.EXITED


def absent(view: View, rank: int) -> bool:
    """Whether the engine has answered and does not know this learner at all."""
    if view.sighting is None or observed(view, rank):
        return False
    launched = view.learners[rank].launched_at
    if launched and view.sighting.at <= launched:
        return False  # the engine was asked before this learner was launched
    run = view.sighting.observation
    # The image of a run without any learner is still being built, unless its learners were there before.
    return run is None or bool(run.learners) or view.learners[rank].granted


def observed(view: View, rank: int) -> LearnerObservation | None:
    run = view.sighting.observation if view.sighting else None
    return run.learners.get(rank) if run else None


class Whereabouts(NamedTuple):
    """What the rows say about a learner. The engine's answer is compared with it."""

    rank: int
    node: str | None
    reported: bool
    """Whether it has reported its own end."""


def undisturbed(run: Observation | None, learners: Iterable[Whereabouts]) -> bool:
    """Whether an engine's answer has no news about a run in which all learners have started: each is where it was, and
    nothing has happened to it. A step would then note and decide nothing because of the engine."""
    if run is None or run.failed or run.held or run.progress:
        return False
    for rank, node, reported in learners:
        seen = run.learners.get(rank)
        if seen is None:
            if not reported:
                return False
            continue
        if seen.interrupted or (seen.node and seen.node != node):
            return False
        if not reported and (seen.unreachable or seen.state is LearnerState.EXITED):
            return False
    return True
