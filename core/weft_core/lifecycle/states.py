"""The life cycle of a job: one table of transitions, from which everything else follows.

``docs/lifecycle.md`` draws it. A transition that is not in the table is refused, terminal states absorb.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """The state of a job. The API, the CLI, the dashboard and FfDL's clients use the same words."""

    QUEUED = "QUEUED"
    """Waits for admission."""
    PENDING = "PENDING"
    """Admitted; the engine is starting learners."""
    DOWNLOADING = "DOWNLOADING"
    """Learners have their start grant and bring code, data, pretrained model and checkpoint."""
    PROCESSING = "PROCESSING"
    """User code runs in all learners."""
    STORING = "STORING"
    """User code has ended in all learners; results go to S3."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    HALTED = "HALTED"


class Desired(StrEnum):
    """What the user wants of a job; the workers converge to it."""

    RUNNING = "RUNNING"
    HALTED = "HALTED"
    DELETED = "DELETED"


class LearnerPhase(StrEnum):
    """What a learner last said of itself, in order of progress."""

    WAITING = "WAITING"
    """No start grant yet: its process may or may not exist."""
    STARTED = "STARTED"
    """Has the start grant, waits for its peers."""
    DOWNLOADING = "DOWNLOADING"
    PROCESSING = "PROCESSING"
    STORING = "STORING"
    EXITED = "EXITED"

    @property
    def order(self) -> int:
        """Position in the order of progress, from 0."""
        return list(LearnerPhase).index(self)


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    """User code failed, or took more memory or storage than it has: counts against ``retries``."""
    LOST = "LOST"
    """Learners vanished (node lost, killed with no exit report): counts against ``retries``."""
    HALTED = "HALTED"
    DELETED = "DELETED"
    INTERRUPTED = "INTERRUPTED"
    """The platform took it back (an orderly ``weft down``, preemption, start timeout): counts against nothing."""


TERMINAL: frozenset[JobState] = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.HALTED})
ACTIVE: frozenset[JobState] = frozenset({JobState.PENDING, JobState.DOWNLOADING, JobState.PROCESSING, JobState.STORING})
"""States in which an attempt is open."""

_S = JobState
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _S.QUEUED: frozenset({_S.PENDING, _S.FAILED, _S.HALTED}),
    # Fast learners may pass several phases between two steps, so progress may skip states.
    _S.PENDING: frozenset({_S.DOWNLOADING, _S.PROCESSING, _S.STORING, _S.COMPLETED, _S.FAILED, _S.HALTED, _S.QUEUED}),
    _S.DOWNLOADING: frozenset({_S.PROCESSING, _S.STORING, _S.COMPLETED, _S.FAILED, _S.HALTED, _S.QUEUED}),
    _S.PROCESSING: frozenset({_S.STORING, _S.COMPLETED, _S.FAILED, _S.HALTED, _S.QUEUED}),
    _S.STORING: frozenset({_S.COMPLETED, _S.FAILED, _S.HALTED, _S.QUEUED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    # Terminal for the workers; `resume` is the user's own, explicit new beginning of the same job.
    _S.HALTED: frozenset(),
}

RESUMABLE: frozenset[JobState] = frozenset({JobState.HALTED, JobState.FAILED})
"""States from which ``resume`` opens the job again as QUEUED, with the next attempt."""


class IllegalTransition(Exception):
    """Raised when a transition is asked for that the table does not have."""


def check_transition(before: JobState, after: JobState) -> None:
    """Raise :class:`IllegalTransition` unless the table allows ``before → after``."""
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(f"a job can't go from {before} to {after}")
