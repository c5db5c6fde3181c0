"""What an answering engine's word means for a learner."""

from __future__ import annotations

from weft_core.engine import LearnerObservation, LearnerState
from weft_core.lifecycle.view import View


def missing(view: View, rank: int) -> bool:
    """Whether an answering engine knows of no living process of this learner: it exited, is absent or cut off."""
    one = observed(view, rank)
    return one.state is LearnerState.EXITED or one.unreachable if one else absent(view, rank)


def unreachable(view: View, rank: int) -> bool:
    """Whether the engine has lost sight of this learner's node: it may live, or not."""
    one = observed(view, rank)
    return one is not None and one.unreachable and one.state is not LearnerState.EXITED


def absent(view: View, rank: int) -> bool:
    """Whether an answering engine does not know this learner at all."""
    if view.sighting is None or observed(view, rank):
        return False
    launched = view.learners[rank].launched_at
    if launched and view.sighting.at <= launched:
        return False  # it was asked before this one was there
    run = view.sighting.observation
    # A run without any learner is one whose image is still being built, unless its learners were there before.
    return run is None or bool(run.learners) or view.learners[rank].granted


def observed(view: View, rank: int) -> LearnerObservation | None:
    run = view.sighting.observation if view.sighting else None
    return run.learners.get(rank) if run else None
