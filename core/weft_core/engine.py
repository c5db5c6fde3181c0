"""The contract between the reconciler and an engine; implementations live in ``weft_workers.engines``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable

from weft_core.launch import LaunchSpec, Toleration


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
    """The observation of one learner. A learner that is missing from a run's observation is absent."""

    rank: int
    state: LearnerState
    exit_code: int | None = None  # of the agent's process; negative = killed by that signal
    reason: str = ""  # 'killed by the kernel: out of memory (limit 1 GiB)', 'unschedulable: …', 'image pull failed: …'
    oom: bool = False
    over_storage: bool = False  # taken off its node because it wrote more than its own storage
    interrupted: bool = False  # the platform took it back (preempted, drained, evicted), not its fault
    node: str = ""  # where it runs
    unreachable: bool = False
    """Its node does not answer (``reason`` says more), so nobody knows: lost only if its heartbeat is silent, too."""


@dataclass(frozen=True)
class Observation:
    """The observation of one run (one attempt)."""

    run_name: str
    learners: Mapping[int, LearnerObservation] = field(default_factory=dict)
    _: KW_ONLY
    progress: str = (
        ""  # 'building environment pytorch:2.13.0: installing 12 of 37 packages': becomes a job event when it changes
    )
    held: str = ""
    """Why the engine's own queue (Kueue's) still holds the whole run back; no start timeout meanwhile."""
    failed: str = ""  # the run can't start: why (an image that can't be built); the attempt fails with it
    failed_code: str | None = None

    @property
    def gone(self) -> bool:
        """No process, actor or pod of it is left."""
        return all(learner.state is LearnerState.EXITED for learner in self.learners.values())


@dataclass(frozen=True)
class Amounts:
    """A sum of resources."""

    cpus: float = 0.0
    gpus: int = 0
    memory: int = 0  # bytes
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Taint:
    """A taint of a node, which keeps off learners that don't tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def tolerated(self, by: Sequence[Toleration]) -> bool:
        """As Kubernetes' scheduler sees it."""
        return any(
            (not toleration.key or toleration.key == self.key)
            and (toleration.operator == "Exists" or toleration.value == self.value)
            and (not toleration.effect or toleration.effect == self.effect)
            for toleration in by
        )


@dataclass(frozen=True)
class Node:
    """A node, with the resources that learners of this installation could have in all."""

    name: str
    cpus: float
    gpus: int
    memory: int  # bytes
    gpu_type: str | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    """Other resources by the engine's own names."""
    busy: Amounts = field(default_factory=Amounts)
    """The amounts that others than this installation's learners use now."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()  # those that keep learners off
    ready: bool = True
    """False: it takes no learners just now (not ready, cordoned), but may again."""
    potential: bool = False
    """It is not there yet: the cluster's autoscaler adds it when somebody waits for it."""


@dataclass(frozen=True)
class Capacity:
    """The resources that an engine could give in all. Admission subtracts the open attempts and the use by others."""

    nodes: tuple[Node, ...]
    queue: str = ""
    """The queue that admits gangs instead of admission: ``Kueue's queue team-a``. Empty: there is none."""
    grows: bool = False
    """Nodes may join: a job that does not fit even an empty engine waits for them instead of failing."""
    images: frozenset[str] | None = None
    """References of the catalogue's images that learners can start in at once; None: it can't tell."""
    exposed: str = ""
    """The reason for which a job can reach other jobs and the service itself; empty: the engine keeps them apart."""
    shared_network: str = ""
    """The reason for which jobs that are kept apart use one network all the same; empty: they do not."""


@dataclass(frozen=True)
class Preparation:
    """Why a job can't start although there is room: the image of its learners is being made, or can't be made."""

    progress: str = ""
    """'building environment pytorch:2.13.0: downloading torch (183 MiB)'."""
    failed: str = ""
    """Why it can't be made; the job fails with this reason. The next job that needs the image starts another try."""
    kind: str = "image"
    """The kind of the job's events about it."""
    error_code: str = "S101"
    """Of the failure; FfDL's."""


def gpu_type_fits(asked: str, there: str | None) -> bool:
    """Whether a node's GPUs are of the type asked for: 'v100' may mean 'Tesla-V100-SXM2-16GB', and 'a10' no 'A100'.
    Unknown may be any."""
    if there is None:
        return True
    wanted = "".join(_words(asked))
    words = _words(there)
    return any(
        "".join(words[start:end]) == wanted for start in range(len(words)) for end in range(start + 1, len(words) + 1)
    )


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


class Engine(Protocol):
    """How learners get started and looked after somewhere. Engines never retry by themselves."""

    name: str
    grows_runs: bool
    """Whether :meth:`grow` works: learners can be added to a run while it runs."""

    def launch(self, spec: LaunchSpec) -> None:
        """Start all learners of ``spec``; idempotent by ``spec.run_name``: what exists already is adopted. Returns
        quickly: an image that is missing all the same is built in the background, its progress shows in ``observe``.

        Raises:
            EngineUnreachable: try again later.
            LaunchRefused: this spec can't ever run here.
        """

    def grow(self, spec: LaunchSpec, ranks: Sequence[int]) -> None:
        """Start these learners too, in a run that is there; idempotent by rank, as :meth:`launch` is by run. Learners
        that have ended are not started again, whatever ``spec`` says.

        Raises:
            EngineUnreachable: try again later.
            LaunchRefused: they can't be added to this run.
        """

    def observe(self) -> Mapping[str, Observation]:
        """Every run of this installation, by run name, in one or few calls. Raises EngineUnreachable."""

    def stop(self, run_name: str, grace: timedelta) -> None:
        """SIGTERM now, SIGKILL after ``grace``, then forget the run; returns at once; idempotent; an unknown name is no
        error. A second call with a shorter grace shortens it. A run that has been stopped and is gone is no longer
        observed. Raises EngineUnreachable."""

    def capacity(self) -> Capacity:
        """Raises EngineUnreachable."""


@runtime_checkable
class Prepares(Protocol):
    """An engine whose images have to be made before learners can start in them."""

    def prepare(self, jobs: Mapping[str, str]) -> Mapping[str, Preparation]:
        """Make the images of the waiting jobs in the background, so that no job holds resources meanwhile. The making
        of an image that no job waits for any more is stopped.

        Args:
            jobs: the image of each job of the installation that waits for this engine, by job id.

        Returns:
            The jobs that can't start yet.

        Raises:
            EngineUnreachable: try again later.
        """
