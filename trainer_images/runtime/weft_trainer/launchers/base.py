"""What a launcher is: given the spec, my place and the peers, which processes start here with which environment?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from weft_trainer.spec import LearnerSpec


@dataclass(frozen=True)
class Peer:
    """A learner as the others can reach it; its ports were free when it reported them and are its own to use."""

    rank: int
    address: str
    ports: tuple[int, ...]


@dataclass(frozen=True)
class Process:
    """One process to start; ``env`` comes on top of the learner's environment."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    label: str = ""  # put before each of its lines, when several write into one log


@dataclass(frozen=True)
class Plan:
    processes: Sequence[Process]
    """The learner ends when all of these have ended well, or with the first that did not."""
    helpers: Sequence[Process] = ()
    """Run from before the processes start until all learners have ended; one that ends early fails the learner."""
    await_ports: Sequence[tuple[str, int]] = ()
    """(address, port) that must take connections before the processes start."""
    slots: int = 1
    """How many workers share this learner's CPUs."""


class Launcher(Protocol):
    def plan(self, spec: LearnerSpec, me: Peer, peers: Sequence[Peer]) -> Plan:
        """``peers`` holds all learners in order of rank, me too. Raises TrainerError."""


def shell(command: str) -> list[str]:
    """The user's command as it stands in the manifest."""
    return ["bash", "-c", command]


def slot_count(spec: LearnerSpec) -> int:
    """One worker a GPU, one on a learner without."""
    return max(1, spec.gpus)


def slot_label(slot: int, slots: int) -> str:
    return f"[{slot}] " if slots > 1 else ""
