"""What each step records, whatever it decides: the condition, the engine's progress, absences. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC

from weft_core.engine import LearnerState, Observation
from weft_core.lifecycle.failures import kept_failure
from weft_core.lifecycle.progress import clock, stall_condition
from weft_core.lifecycle.sightings import absent, unreachable
from weft_core.lifecycle.states import ACTIVE, JobState
from weft_core.lifecycle.view import View

_UNREACHABLE = "Unreachable since"


@dataclass(frozen=True)
class Notes:
    condition: str | None
    """The job's condition; None: nothing is unusual."""
    progress: str = ""
    """News about the image, for the job's events; empty: none."""
    reason: str = ""
    """Why the job is still PENDING; empty: leave it as it is."""
    absences: Mapping[int, int] = field(default_factory=dict)
    """By rank, for learners whose number of absences changes."""
    nodes: Mapping[int, str] = field(default_factory=dict)
    """By rank, for learners whose node was not known yet."""
    held: bool = False
    """Its engine's own queue holds it back: the start timeout counts from the last observation that said so."""


def take_notes(view: View) -> Notes:
    """Derive the notes from a view."""
    if view.unreachable and view.job.state in ACTIVE:
        # The first moment counts, and is recorded in one event.
        if tells_unreachable(view.job.condition):
            return Notes(view.job.condition)
        return Notes(f"{_UNREACHABLE} {view.now.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC: {view.unreachable}")
    attempt, sighting = view.open, view.sighting
    if attempt is None or sighting is None or attempt.launched_at is None or sighting.at <= attempt.launched_at:
        return Notes(_condition(view))
    run = sighting.observation
    progress = run.progress if run and run.progress != view.progress else ""
    reason = ""
    if view.job.state is JobState.PENDING and run:
        starting = [
            learner for learner in run.learners.values() if learner.state is LearnerState.STARTING and learner.reason
        ]
        first = f"learner {starting[0].rank + 1}: {starting[0].reason}" if starting else ""
        reason = run.held or run.progress or first
    absences = {}
    for member in view.members:
        now = (
            member.absences + 1
            if not member.reported and (absent(view, member.rank) or unreachable(view, member.rank))
            else 0
        )
        if now != member.absences:
            absences[member.rank] = now
    away = next(
        (member.rank for member in view.members if not member.reported and unreachable(view, member.rank)), None
    )
    lost = None if run is None or away is None else f"learner {away + 1}: {run.learners[away].reason}"
    condition = lost or _condition(view)
    return Notes(condition, progress, reason, absences, new_nodes(view, run), held=run is not None and bool(run.held))


def _condition(view: View) -> str | None:
    """What is unusual about the gang itself."""
    failure = kept_failure(view)
    if failure is None:
        return stall_condition(view.open)
    until = max(learner.kept_until for learner in view.kept if learner.kept_until is not None)
    return (
        f"kept after a failure until {clock(until)}: weft shell {view.job.id} --learner {failure.rank + 1} looks "
        f"inside, weft halt {view.job.id} ends it"
    )


def tells_unreachable(condition: str | None) -> bool:
    """Whether a job's condition says that its engine does not answer."""
    return condition is not None and condition.startswith(_UNREACHABLE)


def new_nodes(view: View, run: Observation | None) -> dict[int, str]:
    """By rank, the nodes that the engine names and that are not known yet."""
    seen = run.learners if run else {}
    named = {learner.rank: seen[learner.rank].node for learner in view.learners if learner.rank in seen}
    return {rank: node for rank, node in named.items() if node and node != view.learners[rank].node}
