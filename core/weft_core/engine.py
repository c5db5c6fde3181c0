"""The contract between the reconciler and an engine; implementations live in ``weft_workers.engines``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from weft_core.launch import LaunchSpec


class EngineUnreachable(Exception):
    """The engine did not answer, or not sensibly. Says nothing about its runs: unknown is not dead."""


class LaunchRefused(Exception):
    """The engine can't ever run this spec (no such image, a size that can't fit). ``code`` is FfDL's, e.g. S103."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class LearnerState(StrEnum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    EXITED = "EXITED"


@dataclass(frozen=True)
class LearnerObservation:
    """What an engine sees of one learner. A learner that is missing from an observation is absent."""

    rank: int
    state: LearnerState
    exit_code: int | None = None  # of the agent's process; negative = killed by that signal
    reason: str = (
        ""  # 'killed by the kernel: out of memory (limit 1.0 GiB)', 'unschedulable: …', 'image pull failed: …'
    )
    oom: bool = False
    interrupted: bool = False  # the platform took it back, not its fault


@dataclass(frozen=True)
class Observation:
    """What an engine sees of one run (one attempt)."""

    run_name: str
    learners: Mapping[int, LearnerObservation] = field(default_factory=dict)
    progress: str = (
        ""  # 'building environment pytorch:2.13.0: installing 12 of 37 packages': becomes a job event when it changes
    )
    failed: str = ""  # the run can't start: why (an image that can't be built); the attempt fails with it
    failed_code: str | None = None

    @property
    def gone(self) -> bool:
        """No process, actor or pod of it is left."""
        return all(one.state is LearnerState.EXITED for one in self.learners.values())


@dataclass(frozen=True)
class Node:
    name: str
    cpus: float
    gpus: int
    memory: int  # bytes
    gpu_type: str | None = None


@dataclass(frozen=True)
class Capacity:
    """What an engine could give in all, whoever uses it now; admission subtracts the open attempts."""

    nodes: tuple[Node, ...]


class Engine(Protocol):
    """How learners get started and looked after somewhere. Engines never retry by themselves."""

    name: str

    def launch(self, spec: LaunchSpec) -> None:
        """Start all learners of ``spec``; idempotent by ``spec.run_name``: what exists already is adopted. Returns
        quickly: an image that must be built first is built in the background, its progress shows in ``observe``.

        Raises:
            EngineUnreachable: try again later.
            LaunchRefused: this spec can't ever run here.
        """

    def observe(self) -> Mapping[str, Observation]:
        """Every run of this installation, by run name, in one or few calls. Raises EngineUnreachable."""

    def stop(self, run_name: str, grace: timedelta) -> None:
        """SIGTERM now, SIGKILL after ``grace``, then forget the run; returns at once; idempotent; an unknown name is no
        error. A second call with a shorter grace shortens it. A run that has been stopped and is gone is no longer
        observed. Raises EngineUnreachable."""

    def capacity(self) -> Capacity:
        """Raises EngineUnreachable."""
