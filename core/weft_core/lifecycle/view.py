"""Everything that a step knows about a job: its rows at the time of the claim, and the sighting. Plain values, so that
decisions are functions of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from weft_core.engine import Observation
from weft_core.launch import ElasticSpec
from weft_core.lifecycle.rounds import Round
from weft_core.lifecycle.states import Desired, JobState, LearnerPhase, Outcome
from weft_core.rules import NoStepCondition
from weft_core.settings import TimingSettings

BY_REQUEST = "halted by request"


@dataclass(frozen=True)
class JobView:
    id: str
    project_id: str
    engine: str
    state: JobState
    desired: Desired
    learners: int
    retries: int
    failures: int = 0
    reason: str = ""
    condition: str | None = None
    halt_reason: str = BY_REQUEST
    step_rules: tuple[tuple[int, NoStepCondition], ...] = ()
    """The rules ``no step for …`` of its manifest that have not fired, by index."""
    stepped_at: datetime | None = None
    """When its program last reported a metric; read only if there are such rules."""
    state_since: datetime | None = None
    max_runtime: float | None = None  # seconds
    keepalive: float | None = None  # seconds that its client may be silent
    keepalive_until: datetime | None = None
    idle_limit: float | None = None  # seconds
    active_at: datetime | None = None
    """When a learner last printed or worked; read only if the job has an idle limit."""
    name: str = ""
    project: str = ""  # its name
    endpoints: tuple[str, ...] = ()
    """URLs of the S3 stores that its learners need; read only when it is to be launched."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    elastic: ElasticSpec | None = None
    traceparent: str | None = None


@dataclass(frozen=True)
class AttemptView:
    """The newest attempt, open or ended."""

    id: str
    n: int
    run_name: str
    memory: int  # bytes a learner
    resources: Mapping[str, Any] = field(default_factory=dict)
    token: bytes = field(default=b"", repr=False)  # encrypted
    launched_at: datetime | None = None
    held_at: datetime | None = None
    stop_requested_at: datetime | None = None
    grace: float | None = None
    preempted_by: str | None = None
    outcome: Outcome | None = None
    reason: str = ""
    error_code: str | None = None
    exit_code: int | None = None
    ended_at: datetime | None = None
    grow_at: datetime | None = None
    no_output_at: datetime | None = None
    stalled_at: datetime | None = None
    stalled_since: datetime | None = None
    look_at: datetime | None = None
    alive_at: datetime | None = None
    verdict: str | None = None
    """Of its stall; '': the reports showed too little; None: there is none yet."""
    budget: str = ""
    """The name of the budget to which it is charged; '': to none."""
    reserved: float = 0.0
    """GPU-seconds of the budget that it may use."""

    @property
    def preempted(self) -> bool:
        """Whether it has ended because a job has a right to its room, and for no other reason."""
        return self.preempted_by is not None and self.reason == preemption_words(self.preempted_by)


def preemption_words(by: str) -> str:
    """The reason of an attempt that makes room for ``by``."""
    return f"preempted by {by}"


@dataclass(frozen=True)
class LearnerView:
    rank: int
    phase: LearnerPhase = LearnerPhase.WAITING
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    heard_since: datetime | None = None
    idle_since: datetime | None = None
    still_since: datetime | None = None
    """No line, metric or byte on a disk since then, by its last heartbeat."""
    pause: float = 0.0
    """The longest time between two such signs, in seconds."""
    wrote: bool | None = None
    active_at: datetime | None = None
    """Its last heartbeat that reported work, or the end of its program."""
    stacks_at: datetime | None = None
    """When its agent last reported the stacks of its processes."""
    absences: int = 0
    node: str | None = None
    exit_code: int | None = None
    exit_reason: str | None = None
    last_lines: str | None = None
    exited_at: datetime | None = None
    kept_until: datetime | None = None
    """Until then it stays for a look inside: its command has failed, with the exit code and reason above."""
    launched_at: datetime | None = None
    arrived: int | None = None  # this and the next: see weft_core.lifecycle.rounds.RoundLearner
    broken: int | None = None
    broken_at: datetime | None = None
    left: bool = False
    left_reason: str = ""

    @property
    def granted(self) -> bool:
        return self.phase is not LearnerPhase.WAITING

    @property
    def reported(self) -> bool:
        """Whether it has reported its own end."""
        return self.phase is LearnerPhase.EXITED

    @property
    def kept(self) -> bool:
        """Whether its command has failed, and it stays for a look inside."""
        return self.kept_until is not None and not self.reported

    @property
    def succeeded(self) -> bool:
        return self.reported and self.exit_code == 0


@dataclass(frozen=True)
class Sighting:
    """The answer of an engine about the attempt's run."""

    observation: Observation | None  # None: the engine does not know the run
    at: datetime  # when the engine was asked, on the database's clock


@dataclass(frozen=True)
class ExitReport:
    """The report that a learner stored in S3 before it sent it to the API."""

    exit_code: int
    reason: str


@dataclass(frozen=True)
class View:
    now: datetime  # the database's clock
    timings: TimingSettings
    job: JobView
    attempt: AttemptView | None = None
    learners: tuple[LearnerView, ...] = ()
    """All that the attempt has ever had, in order of rank."""
    sighting: Sighting | None = None
    unreachable: str | None = None  # why the engine gave no answer
    exits: Mapping[int, ExitReport | None] = field(default_factory=dict)
    """Reports for which S3 was searched, by rank; None: there is none."""
    progress: str = ""  # newest 'image' event of this attempt
    progress_at: datetime | None = None
    rounds: tuple[Round, ...] = ()
    """The last two rounds of an elastic attempt."""

    @property
    def members(self) -> tuple[LearnerView, ...]:
        """The learners that have not been lost."""
        return tuple(learner for learner in self.learners if not learner.left)

    @property
    def gang(self) -> tuple[LearnerView, ...]:
        """The members whose work counts: in an elastic attempt, those that have joined."""
        if all(round_.open for round_ in self.rounds):
            return self.members
        return tuple(member for member in self.members if member.arrived is not None)

    @property
    def kept(self) -> tuple[LearnerView, ...]:
        """The members that stay for a look inside."""
        return tuple(member for member in self.members if member.kept)

    @property
    def open(self) -> AttemptView | None:
        """The open attempt."""
        return self.attempt if self.attempt is not None and self.attempt.ended_at is None else None

    def grace(self, most: float = math.inf) -> float:
        """Seconds that learners have to save a checkpoint if the open attempt stops now: the grace of its stop, else
        that of the settings; at most ``most``."""
        attempt = self.open
        named = attempt.grace if attempt else None
        return min(most, self.timings.grace if named is None else named)

    def since(self, moment: datetime) -> float:
        """Seconds from ``moment`` to now."""
        return (self.now - moment) / timedelta(seconds=1)
