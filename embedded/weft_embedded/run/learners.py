"""What learners say and are told: the learner's API without its database, for the gang of one attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft_core.launch import LearnerSpec
from weft_core.lifecycle.states import JobState, LearnerPhase
from weft_core.lifecycle.storing import may_store
from weft_embedded.run.metrics import MetricsFile

_Phase = LearnerPhase


class Refused(Exception):
    """An answer that is a problem, as the API gives it."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail


@dataclass
class Learner:
    """What one rank has said so far."""

    rank: int
    instance: str | None = None
    phase: LearnerPhase = _Phase.WAITING
    address: str | None = None
    ports: list[int] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict, repr=False)
    sequence: int = 0
    metrics_sequence: int = 0
    exit_code: int | None = None
    reason: str = ""

    @property
    def exited(self) -> bool:
        return self.phase is _Phase.EXITED


class Gang:
    """The learners of one attempt. Thread-safe; ``tell`` gets what is worth showing, in order.

    Args:
        spec: what each learner is to do, but for its rank.
        tell: called with ``(type, fields)``, under the lock.
        prepare: called with a rank before its learner gets its spec; what its environment needs besides.
        on_exit: called with each rank that has reported its end.
        metrics: gets what the training reports.
    """

    def __init__(
        self,
        spec: LearnerSpec,
        tell: Callable[..., None],
        prepare: Callable[[int], Mapping[str, str]],
        on_exit: Callable[[int], None],
        metrics: MetricsFile,
    ) -> None:
        self._spec = spec
        self._tell = tell
        self._prepare = prepare
        self._on_exit = on_exit
        self._metrics = metrics
        self.learners = [Learner(rank) for rank in range(spec.learners)]
        self.state = JobState.PENDING
        self._grace: float | None = None  # of a stop, once there is one
        self._line = 0
        self._changed = threading.Condition()

    # --- what the run asks ---

    def stop(self, grace: float) -> None:
        """Tell the learners with their next heartbeats."""
        with self._changed:
            self._grace = grace
            self._changed.notify_all()

    @property
    def stopping(self) -> bool:
        return self._grace is not None

    @property
    def succeeded(self) -> bool:
        return all(one.exited and one.exit_code == 0 for one in self.learners)

    # --- the learner's API ---

    def start(self, call: dict[str, Any]) -> dict[str, Any]:
        learner = self._rank(call)
        with self._changed:
            if learner.instance not in (None, call["instance"]):
                raise Refused(409, "already_granted", f"another agent holds the start grant of rank {learner.rank}")
            if self.stopping or learner.exited:
                raise Refused(410, "stale_attempt", "the attempt is to stop: stop and exit")
            if learner.instance is None:
                learner.env = {**self._spec.env, **self._prepare(learner.rank)}
                learner.instance = call["instance"]
            self._advance(learner, _Phase.STARTED)
        spec = self._spec.model_copy(update={"rank": learner.rank, "env": learner.env})
        return spec.model_dump(mode="json")

    def address(self, call: dict[str, Any]) -> None:
        learner = self._granted(call)
        with self._changed:
            learner.address, learner.ports = str(call["address"]), [int(port) for port in call["ports"]]
            self._changed.notify_all()

    def peers(self, call: dict[str, Any]) -> dict[str, Any]:
        """All learners, once all have an address and are as far as ``phase``, or after ``wait`` seconds."""
        self._rank(call)
        least = _Phase(call["phase"]).order if call.get("phase") else 0

        def ready() -> bool:
            return all(one.address is not None and one.phase.order >= least for one in self.learners)

        with self._changed:
            self._changed.wait_for(ready, min(float(call.get("wait") or 0), 30.0))
            peers = [
                {"rank": one.rank, "address": one.address, "ports": one.ports, "phase": one.phase.value}
                for one in self.learners
            ]
            return {"ready": ready(), "peers": peers}

    def phase(self, call: dict[str, Any]) -> None:
        learner = self._granted(call)
        with self._changed:
            self._advance(learner, _Phase(call["phase"]))
            if call.get("message"):
                self._tell("event", kind="learner", message=f"learner {learner.rank + 1}: {call['message']}")

    def heartbeat(self, call: dict[str, Any]) -> dict[str, Any]:
        self._granted(call)
        return {"stop": self.stopping, "grace_seconds": None if self._grace is None else int(self._grace)}

    def logs(self, call: dict[str, Any]) -> None:
        learner = self._granted(call)
        with self._changed:
            if call["sequence"] < learner.sequence:
                return  # its answer was lost, the lines are known
            learner.sequence = call["sequence"] + 1
            for line in call["lines"]:
                for text in line["s"].split("\n"):
                    self._tell("line", n=self._line, t=line["t"], learner=learner.rank + 1, text=text)
                    self._line += 1

    def metrics(self, call: dict[str, Any]) -> None:
        learner = self._granted(call)
        with self._changed:
            if call["sequence"] < learner.metrics_sequence:
                return
            learner.metrics_sequence = call["sequence"] + 1
            try:
                self._metrics.add(self._spec.attempt, learner.rank + 1, call["records"])
            except OSError as error:  # no training ends for its metrics
                raise Refused(409, "metrics_not_kept", f"{self._metrics.path}: {error.strerror or error}") from None

    def storing(self, call: dict[str, Any]) -> dict[str, Any]:
        """The storing grant (weft_core.lifecycle.storing)."""
        learner = self._granted(call)
        with self._changed:
            learner.exit_code = int(call["exit_code"])
            self._advance(learner, _Phase.STORING)
            others = [other for other in self.learners if other is not learner]
            leads = learner.rank == 0
            granted = may_store(learner.exit_code, others, leads=leads, stopping=self.stopping)
            return {"granted": granted, "wait": not granted}

    def exit(self, call: dict[str, Any]) -> None:
        learner = self._granted(call)
        with self._changed:
            if learner.exited:
                return
            learner.exit_code, learner.reason = int(call["exit_code"]), str(call.get("reason") or "")
            self._advance(learner, _Phase.EXITED)
        self._on_exit(learner.rank)

    # --- shared ---

    def check(self, call: dict[str, Any]) -> None:
        """Raise Refused unless this is the agent that holds its rank's start grant."""
        self._granted(call)

    def _rank(self, call: dict[str, Any]) -> Learner:
        rank = int(call["rank"])
        if not 0 <= rank < len(self.learners):
            raise Refused(400, "invalid_request", f"rank: this attempt has no learner with rank {rank}")
        return self.learners[rank]

    def _granted(self, call: dict[str, Any]) -> Learner:
        learner = self._rank(call)
        if learner.instance is None or learner.instance != call.get("instance"):
            raise Refused(410, "stale_attempt", "another agent, or none, holds this rank's start grant: stop and exit")
        return learner

    def _advance(self, learner: Learner, phase: LearnerPhase) -> None:
        if learner.phase.order < phase.order:
            learner.phase = phase
        state = _state_of([one.phase for one in self.learners])
        if state is not None and list(JobState).index(state) > list(JobState).index(self.state):
            self.state = state
            self._tell(
                "event", kind="state", state=state.value, message=_REASONS[state].format(count(len(self.learners)))
            )
        self._changed.notify_all()


_REASONS = {
    JobState.DOWNLOADING: "bringing code and data",
    JobState.PROCESSING: "running in {}",
    JobState.STORING: "storing results",
}


def count(learners: int) -> str:
    """``1 learner``, ``2 learners``."""
    return f"{learners} learner" + ("" if learners == 1 else "s")


def _state_of(phases: Sequence[LearnerPhase]) -> JobState | None:
    """How far the gang is, as the workers see it."""
    last = min(one.order for one in phases)
    if last >= _Phase.STORING.order:
        return JobState.STORING
    if last >= _Phase.PROCESSING.order:
        return JobState.PROCESSING
    return JobState.DOWNLOADING if max(one.order for one in phases) >= _Phase.STARTED.order else None
