"""The actions: :func:`weft_core.lifecycle.decide.decide` names an action, and its caller performs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from weft_core.lifecycle.states import JobState, Outcome
from weft_core.lifecycle.view import ExitReport

GANG_GRACE = 30.0
"""For learners whose gang has failed: enough to save a checkpoint, but they may hang in a collective for ever."""
SHORT_GRACE = 10.0
"""For learners that have nothing left to save."""


@dataclass(frozen=True)
class Rest:
    """Nothing is left to do until somebody asks."""


@dataclass(frozen=True)
class Pause:
    """Nothing to do now; the next step is due in so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Admit:
    """Ask admission for room on the engine."""


@dataclass(frozen=True)
class HaltQueued:
    """Nothing runs: the job is HALTED at once."""

    reason: str


@dataclass(frozen=True)
class Purge:
    """Nothing runs (any more): remove the job."""


@dataclass(frozen=True)
class Launch:
    """Have the engine start the open attempt's learners."""


@dataclass(frozen=True)
class Advance:
    """The gang has come further."""

    state: JobState
    reason: str


@dataclass(frozen=True)
class RecordExits:
    """Write exit reports found in S3 as if the learners had reached the API."""

    reports: Mapping[int, ExitReport]


@dataclass(frozen=True)
class Notice:
    """Something about the gang's progress that the user should know; it is recorded so that it is said only once."""

    what: Literal["no_output", "stalled", "judge", "moving", "look", "looked"]
    """``judge``: all agents that answer have reported their stacks, and the caller finds the verdict. ``look``: they
    are to look at their processes. ``looked``: they have, and the caller finds out whether the gang hangs."""
    message: str
    since: datetime | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fire:
    """A rule of the manifest holds, and has not fired before."""

    rule: int
    """Its index."""
    found: str
    """What made it hold, in words."""


@dataclass(frozen=True)
class Settle:
    """Decide the attempt's outcome, and order its learners to stop.

    ``exit_code`` is set when a learner's command failed by itself, and only then can a retry of a FAILED attempt help.
    """

    outcome: Outcome
    reason: str
    grace: float
    error_code: str | None = None
    exit_code: int | None = None
    rank: int | None = None
    """The learner to blame; the last lines of its log go into the reason."""


@dataclass(frozen=True)
class Lose:
    """Learners of an elastic attempt are lost, and enough are left to go on without them."""

    reasons: Mapping[int, str]
    """By rank, without their names: 'killed by signal 9 (SIGKILL)'."""


@dataclass(frozen=True)
class Grow:
    """Ask admission whether there is room for more learners of an elastic attempt."""


@dataclass(frozen=True)
class LaunchMore:
    """Have the engine start learners that joined an attempt after its launch."""

    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Close:
    """The outcome is decided: stop what is left, and end the attempt when the engine confirms that nothing is."""

    grace: float  # seconds left
    seconds: float  # until the next step


Action = (
    Rest
    | Pause
    | Admit
    | HaltQueued
    | Purge
    | Launch
    | LaunchMore
    | Advance
    | RecordExits
    | Lose
    | Grow
    | Notice
    | Fire
    | Settle
    | Close
)


@dataclass(frozen=True)
class SearchExits:
    """No action yet: these learners ended without a report to the API. The caller searches S3 for their exit reports,
    adds what it finds to the view's ``exits``, and asks for a decision again."""

    ranks: frozenset[int]


Decision = Action | SearchExits


@dataclass(frozen=True)
class Conclusion:
    """The job's next state when its attempt has ended."""

    state: JobState
    reason: str
    error_code: str | None = None
    failures: int = 0
    next_in: float | None = None
