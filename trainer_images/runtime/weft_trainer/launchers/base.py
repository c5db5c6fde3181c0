"""A launcher decides which processes this learner starts, and with which environment, from the spec and the peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft_trainer.program.plan import Plan
from weft_trainer.spec import LearnerSpec, Peer


class Launcher(Protocol):
    def plan(self, spec: LearnerSpec, me: Peer, peers: Sequence[Peer]) -> Plan:
        """The processes of the learner ``me``. ``peers`` has all learners in order of rank, also this one. Raises
        TrainerError."""


def shell(command: str) -> list[str]:
    """The user's command as it stands in the manifest."""
    return ["bash", "-c", command]


def slot_count(spec: LearnerSpec) -> int:
    """The number of workers: one for each GPU, or one on a learner without GPUs."""
    return max(1, spec.gpus)


def slot_label(slot: int, slots: int) -> str:
    return f"[{slot}] " if slots > 1 else ""
