"""How far a gang has come: the rule that brings a job from PENDING to STORING.

A step of a worker applies it. So does the API, with the report that a job advances by, where no step is under way: most
reports need nothing else of a step.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft_core.lifecycle.actions import Advance
from weft_core.lifecycle.states import ACTIVE, TRANSITIONS, JobState, LearnerPhase
from weft_core.words import count


def advance(state: JobState, phases: Sequence[LearnerPhase]) -> Advance | None:
    """The state that follows ``state`` for a gang whose learners are in these phases; None: the job stays in it."""
    orders = [phase.order for phase in phases]
    target = state
    if max(orders) >= LearnerPhase.STARTED.order:
        target = JobState.DOWNLOADING
    if min(orders) >= LearnerPhase.PROCESSING.order:
        target = JobState.PROCESSING
    if min(orders) >= LearnerPhase.STORING.order:
        target = JobState.STORING
    if target not in ACTIVE or target not in TRANSITIONS[state]:
        return None
    reasons = {
        JobState.DOWNLOADING: "bringing code and data",
        JobState.PROCESSING: f"running in {count(len(phases), 'learner')}",
        JobState.STORING: "storing results",
    }
    return Advance(target, reasons[target])
