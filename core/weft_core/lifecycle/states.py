"""The life cycle of a job. All of it follows from one table of transitions.

``docs/lifecycle.md`` shows it as a picture. A transition that is not in the table is refused. Terminal states have
none."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """The state of a job. The API, the CLI, the dashboard and FfDL's clients use the same words."""

    QUEUED = "QUEUED"
    """The job waits for admission."""
    PENDING = "PENDING"
    """The job is admitted, and the engine is starting its learners."""
    DOWNLOADING = "DOWNLOADING"
    """The learners have their start grant and download code, data, pretrained model and checkpoint."""
    PROCESSING = "PROCESSING"
    """User code runs in all learners."""
    STORING = "STORING"
    """User code has ended in all learners, which upload the results to S3."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    HALTED = "HALTED"


class Desired(StrEnum):
    """The user's last request for a job. The workers converge to it."""

    RUNNING = "RUNNING"
    HALTED = "HALTED"
    DELETED = "DELETED"


class LearnerPhase(StrEnum):
    """The phase that a learner has last reported, in order of progress."""

    WAITING = "WAITING"
    """The learner has no start grant. Its process may or may not exist."""
    STARTED = "STARTED"
    """The learner has the start grant and waits for its peers."""
    DOWNLOADING = "DOWNLOADING"
    PROCESSING = "PROCESSING"
    STORING = "STORING"
    EXITED = "EXITED"

    @property
    def order(self) -> int:
        """The position in the order of progress, from 0."""
        return list(LearnerPhase).index(self)


class Outcome(StrEnum):
    """The ending of an attempt."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    """User code failed, or used more memory or storage than it has. This uses up one of the ``retries``."""
    LOST = "LOST"
    """Learners vanished (a lost node; killed without an exit report). This uses up one of the ``retries``."""
    HALTED = "HALTED"
    DELETED = "DELETED"
    INTERRUPTED = "INTERRUPTED"
    """The platform ended the attempt (an orderly ``weft down``, preemption, a start timeout). This uses up no retry."""


TERMINAL: frozenset[JobState] = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.HALTED})
ACTIVE: frozenset[JobState] = frozenset({JobState.PENDING, JobState.DOWNLOADING, JobState.PROCESSING, JobState.STORING})
"""The states in which an attempt is open."""

_S = JobState
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _S.QUEUED: frozenset({_S.PENDING, _S.FAILED, _S.HALTED}),
    # Fast learners may pass several phases between two steps, so progress may skip states.
    _S.PENDING: frozenset({_S.DOWNLOADING, _S.PROCESSING, _S.STORING, _S.COMPLETED, _S.FAILED, _S.HALTED, _S.QUEUED}),
    _S.DOWNLOADING: frozenset({_S.PROCESSING, _S.STORING, _S.COMPLETED, _S.FAILED, _S.HALTED, _S.QUEUED}),
    _S.PROCESSING: frozenset({_S.STORING, _S.COMPLETED, _S.FAILED, _S.HALTED, _S.QUEUED}),
    _S.STORING: frozenset({_S.COMPLETED, _S.FAILED, _S.HALTED, _S.QUEUED}),
    # Terminal, too. A sweep opens a trial's job again when the trial goes on to its next rung.
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    # Terminal for the workers. With `resume`, the user starts the same job anew.
    _S.HALTED: frozenset(),
}

RESUMABLE: frozenset[JobState] = frozenset({JobState.HALTED, JobState.FAILED})
"""The states from which ``resume`` opens the job again as QUEUED, for its next attempt."""


class IllegalTransition(Exception):
    """The table does not have the requested transition."""


def check_transition(before: JobState, after: JobState) -> None:
    """Raise :class:`IllegalTransition` unless the table allows ``before → after``."""
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(f"a job can't go from {before} to {after}")
