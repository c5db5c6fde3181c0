"""What a step notes by the way, whatever it decides: the condition, the engine's progress, absences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC

from weft_core.engine import LearnerState, Observation
from weft_core.lifecycle.progress import stall_condition
from weft_core.lifecycle.sightings import absent, unreachable
from weft_core.lifecycle.states import ACTIVE, JobState
from weft_core.lifecycle.view import View


@dataclass(frozen=True)
class Notes:
    condition: str | None
    """What is unusual just now; None: nothing."""
    progress: str = ""
    """News about the image, for the job's events; empty: none."""
    reason: str = ""
    """Why the job is still PENDING; empty: leave it as it is."""
    absences: Mapping[int, int] = field(default_factory=dict)
    """By rank, where the number changes."""
    nodes: Mapping[int, str] = field(default_factory=dict)
    """By rank, where it runs, when that is new."""
    held: bool = False
    """Its engine's own queue holds it back: the start timeout counts from the last such look."""


def take_notes(view: View) -> Notes:
    """Derive them from a view."""
    if view.unreachable and view.job.state in ACTIVE:
        # The first moment counts, and one event tells of it.
        known = view.job.condition
        if known and known.startswith("Unreachable since"):
            return Notes(known)
        return Notes(f"Unreachable since {view.now.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC: {view.unreachable}")
    attempt, sighting = view.open, view.sighting
    if attempt is None or sighting is None or attempt.launched_at is None or sighting.at <= attempt.launched_at:
        return Notes(stall_condition(attempt))
    run = sighting.observation
    progress = run.progress if run and run.progress != view.progress else ""
    reason = ""
    if view.job.state is JobState.PENDING and run:
        starting = [one for one in run.learners.values() if one.state is LearnerState.STARTING and one.reason]
        first = f"learner {starting[0].rank + 1}: {starting[0].reason}" if starting else ""
        reason = run.held or run.progress or first
    absences = {}
    for one in view.members:
        now = one.absences + 1 if not one.reported and (absent(view, one.rank) or unreachable(view, one.rank)) else 0
        if now != one.absences:
            absences[one.rank] = now
    away = next((one.rank for one in view.members if not one.reported and unreachable(view, one.rank)), None)
    lost = None if run is None or away is None else f"learner {away + 1}: {run.learners[away].reason}"
    condition = lost or stall_condition(attempt)
    return Notes(condition, progress, reason, absences, new_nodes(view, run), held=run is not None and bool(run.held))


def new_nodes(view: View, run: Observation | None) -> dict[int, str]:
    """By rank, where learners run, as far as the engine says what is not known yet."""
    seen = run.learners if run else {}
    named = {one.rank: seen[one.rank].node for one in view.learners if one.rank in seen}
    return {rank: node for rank, node in named.items() if node and node != view.learners[rank].node}
