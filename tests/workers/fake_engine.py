"""An engine in memory that a test scripts, to show faults that a real one can't be made to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from weft_core.engine import (
    Capacity,
    EngineUnreachable,
    LaunchRefused,
    LearnerObservation,
    LearnerState,
    Node,
    Observation,
    Preparation,
)
from weft_core.launch import LaunchSpec

GIB = 1 << 30


@dataclass
class FakeEngine:
    """``runs`` is what exists; tests change it as they like."""

    name: str = "local"
    nodes: tuple[Node, ...] = (Node("node-1", cpus=4, gpus=4, memory=16 * GIB, gpu_type="a100"),)
    queue: str = ""
    grows_runs: bool = True
    grows: bool = False
    runs: dict[str, Observation] = field(default_factory=dict)
    launches: list[LaunchSpec] = field(default_factory=list)
    """Every call, also repeated ones."""
    created: list[str] = field(default_factory=list)
    """Runs that were really made, once each when all goes well."""
    stops: list[tuple[str, float]] = field(default_factory=list)

    looks: int = 0
    unreachable: str = ""
    refuses: LaunchRefused | None = None
    obeys: bool = True
    """Whether a stop ends a run at once."""
    late_create: bool = False
    """A launch fails as unreachable, and has worked nevertheless."""
    images: dict[str, Preparation] = field(default_factory=dict)
    """Images that are not there yet."""
    wanted: set[str] = field(default_factory=set)
    """Images that jobs wait for."""

    def prepare(self, jobs: Mapping[str, str]) -> Mapping[str, Preparation]:
        self._answer()
        self.wanted = {image for image in jobs.values() if image in self.images}
        return {job: self.images[image] for job, image in jobs.items() if image in self.images}

    def launch(self, spec: LaunchSpec) -> None:
        self.launches.append(spec)
        self._answer()
        if self.refuses:
            raise self.refuses
        if spec.run_name not in self.runs:
            self.created.append(spec.run_name)
            learners = {
                rank: LearnerObservation(rank, LearnerState.RUNNING, node=self.nodes[rank % len(self.nodes)].name)
                for rank in range(spec.learners)
            }
            self.runs[spec.run_name] = Observation(spec.run_name, learners)
        if self.late_create:
            self.late_create = False
            raise EngineUnreachable("timed out")

    def grow(self, spec: LaunchSpec, ranks: Sequence[int]) -> None:
        self._answer()
        if self.refuses:
            raise self.refuses
        run = self.runs[spec.run_name]
        new = {
            rank: LearnerObservation(rank, LearnerState.RUNNING, node=self.nodes[rank % len(self.nodes)].name)
            for rank in ranks
            if rank not in run.learners
        }
        self.runs[spec.run_name] = replace(run, learners={**run.learners, **new})

    def observe(self) -> Mapping[str, Observation]:
        self.looks += 1
        self._answer()
        return dict(self.runs)

    def stop(self, run_name: str, grace: timedelta) -> None:
        self.stops.append((run_name, grace.total_seconds()))
        self._answer()
        if self.obeys:
            self.runs.pop(run_name, None)

    def capacity(self) -> Capacity:
        self._answer()
        return Capacity(self.nodes, queue=self.queue, grows=self.grows)

    def _answer(self) -> None:
        if self.unreachable:
            raise EngineUnreachable(self.unreachable)

    # --- what tests do to runs ---

    def end_learner(self, run_name: str, rank: int, **how: Any) -> None:
        """Its process ends, as the keywords of LearnerObservation say."""
        run = self.runs[run_name]
        ended = replace(run.learners[rank], state=LearnerState.EXITED, **how)
        self.runs[run_name] = replace(run, learners={**run.learners, rank: ended})

    def lose_node(self, name: str, back: bool = False) -> None:
        """Nobody knows what has become of the learners on a node; or it answers again."""
        reason = "" if back else f"node {name} does not answer"
        for run in list(self.runs.values()):
            learners = {
                rank: replace(learner, unreachable=not back, reason=reason) if learner.node == name else learner
                for rank, learner in run.learners.items()
            }
            self.runs[run.run_name] = replace(run, learners=learners)

    def lose_learner(self, run_name: str, rank: int) -> None:
        """The engine does not know it any more."""
        run = self.runs[run_name]
        self.runs[run_name] = replace(run, learners={r: learner for r, learner in run.learners.items() if r != rank})
