"""What a launcher is: given the spec, my place and the peers, which processes start here with which environment?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft_trainer.program.plan import Plan
from weft_trainer.spec import LearnerSpec, Peer


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
