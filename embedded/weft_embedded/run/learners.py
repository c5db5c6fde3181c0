"""The API for learners without its database, for the gang of one attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from weft_core.launch import LearnerSpec
from weft_core.lifecycle.leftovers import leftover_events
from weft_core.lifecycle.states import LearnerPhase
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
    """Everything that one rank has reported so far."""

    rank: int
    instance: str | None = None
    phase: LearnerPhase = _Phase.WAITING
    address: str | None = None
    ports: list[int] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict, repr=False)
    sequence: int = 0
    metrics_sequence: int = 0
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    idle_since: datetime | None = None
    wrote: bool | None = None
    stacks: dict[str, Any] | None = None
    stacks_at: datetime | None = None
    exit_code: int | None = None
    reason: str = ""
    exited_at: datetime | None = None

    @property
    def exited(self) -> bool:
        return self.phase is _Phase.EXITED


class Gang:
    """The learners of one attempt. Thread-safe; ``tell`` gets the events to show, in order.

    Args:
        spec: the task of each learner, except its rank.
        tell: called with ``(type, fields)``, under the lock.
        prepare: called with a rank before its learner gets its spec; returns further variables for its environment.
            Raises OSError when the learner can't start.
        changed: called when a learner has come further.
        metrics: gets the values that the training reports.
        clock: the time of day.
    """

    def __init__(
        self,
        spec: LearnerSpec,
        tell: Callable[..., None],
        prepare: Callable[[int], Mapping[str, str]],
        changed: Callable[[], None],
        metrics: MetricsFile,
        clock: Callable[[], datetime],
    ) -> None:
        self._spec = spec
        self._tell = tell
        self._prepare = prepare
        self._news = changed
        self._metrics = metrics
        self._clock = clock
        self._learners = [Learner(rank) for rank in range(spec.learners)]
        self._dump: str | None = None
        self._grace: float | None = None  # of a stop, once there is one
        self._line = 0
        self._changed = threading.Condition()

    # --- requests of the run ---

    def stop(self, grace: float) -> None:
        """Have the answers to the learners' next heartbeats order a stop."""
        with self._changed:
            self._grace = grace
            self._changed.notify_all()

    def ask_for_stacks(self, since: datetime | None) -> None:
        """Have the answers to the learners' next heartbeats ask for stacks, once for each moment; None: no more."""
        self._dump = since.isoformat() if since else None

    def measured(self, learner: int, records: list[dict[str, Any]]) -> None:
        """Keep metrics that were found elsewhere than in the learner's reports. Raises OSError."""
        with self._changed:
            self._metrics.add(self._spec.attempt, learner, records)

    def snapshot(self) -> list[Learner]:
        """The learners as they are now."""
        with self._changed:
            return [replace(learner) for learner in self._learners]

    @property
    def _stopping(self) -> bool:
        return self._grace is not None

    # --- the learner's API ---

    def start(self, call: dict[str, Any]) -> dict[str, Any]:
        learner = self._rank(call)
        with self._changed:
            if learner.instance not in (None, call["instance"]):
                raise Refused(409, "already_granted", f"another agent holds the start grant of rank {learner.rank}")
            if self._stopping or learner.exited:
                raise Refused(410, "stale_attempt", "the attempt is to stop: stop and exit")
            if learner.instance is None:
                learner.instance, learner.started_at = call["instance"], self._clock()
                try:
                    learner.env = {**self._spec.env, **self._prepare(learner.rank)}
                except OSError as error:
                    # The agent could say no more than this either.
                    self._exit(learner, 1, str(error))
                    raise Refused(410, "stale_attempt", f"the learner can't start: {error}") from None
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
            return all(learner.address is not None and learner.phase.order >= least for learner in self._learners)

        with self._changed:
            self._changed.wait_for(ready, min(float(call.get("wait") or 0), 30.0))
            peers = [
                {"rank": learner.rank, "address": learner.address, "ports": learner.ports, "phase": learner.phase.value}
                for learner in self._learners
            ]
            return {"ready": ready(), "peers": peers}

    def phase(self, call: dict[str, Any]) -> None:
        learner = self._granted(call)
        with self._changed:
            self._advance(learner, _Phase(call["phase"]))
            if call.get("message"):
                self._tell("event", kind="learner", message=f"learner {learner.rank + 1}: {call['message']}")

    def heartbeat(self, call: dict[str, Any]) -> dict[str, Any]:
        learner = self._granted(call)
        with self._changed:
            learner.heartbeat_at, learner.wrote = self._clock(), call.get("wrote")
            idle = call.get("idle_seconds")
            learner.idle_since = None if idle is None else learner.heartbeat_at - timedelta(seconds=float(idle))
            grace = None if self._grace is None else int(self._grace)
            return {"stop": self._stopping, "grace_seconds": grace, "dump": self._dump}

    def stacks(self, call: dict[str, Any]) -> None:
        learner = self._granted(call)
        with self._changed:
            if call["request"] == self._dump:
                learner.stacks, learner.stacks_at = call["report"], self._clock()

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
            others = [other for other in self._learners if other is not learner]
            leads = learner.rank == 0
            granted = may_store(learner.exit_code, others, leads=leads, stopping=self._stopping)
            return {"granted": granted, "wait": not granted}

    def exit(self, call: dict[str, Any]) -> None:
        learner = self._granted(call)
        with self._changed:
            if not learner.exited:
                self._exit(learner, int(call["exit_code"]), str(call.get("reason") or ""))
                if call.get("leftovers"):
                    for kind, message in leftover_events(learner.rank + 1, call["leftovers"]):
                        self._tell("event", kind=kind, message=message)

    # --- shared ---

    def check(self, call: dict[str, Any]) -> None:
        """Raise Refused unless this is the agent that holds its rank's start grant."""
        self._granted(call)

    def _rank(self, call: dict[str, Any]) -> Learner:
        rank = int(call["rank"])
        if not 0 <= rank < len(self._learners):
            raise Refused(400, "invalid_request", f"rank: this attempt has no learner with rank {rank}")
        return self._learners[rank]

    def _granted(self, call: dict[str, Any]) -> Learner:
        learner = self._rank(call)
        if learner.instance is None or learner.instance != call.get("instance"):
            raise Refused(410, "stale_attempt", "another agent, or none, holds this rank's start grant: stop and exit")
        return learner

    def _exit(self, learner: Learner, exit_code: int, reason: str) -> None:
        learner.exit_code, learner.reason, learner.exited_at = exit_code, reason, self._clock()
        self._advance(learner, _Phase.EXITED)

    def _advance(self, learner: Learner, phase: LearnerPhase) -> None:
        if learner.phase.order < phase.order:
            learner.phase = phase
        learner.heartbeat_at = self._clock()
        self._changed.notify_all()
        self._news()
