"""Which learner of a gang may store its results, and when: the rule behind the storing grant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from weft_core.lifecycle.states import LearnerPhase


class Peer(Protocol):
    """Another learner of the gang."""

    @property
    def phase(self) -> str:
        """A :class:`LearnerPhase`."""

    @property
    def exit_code(self) -> int | None:
        """The exit code of its command; None: it has not reported one."""


def may_store(exit_code: int, peers: Iterable[Peer], *, leads: bool, stopping: bool) -> bool:
    """Whether a learner may store now; else it asks again.

    After success everywhere the leader stores last, so that its files win. After a failure or a stop every learner
    stores at once what it has.

    Args:
        exit_code: of the learner's own command.
        peers: the other learners whose work counts.
        leads: whether the learner leads the gang.
        stopping: whether the attempt is to stop, or has an outcome.
    """
    others = list(peers)
    if stopping or exit_code != 0 or any(peer.exit_code not in (None, 0) for peer in others):
        return True
    if leads:
        return all(peer.phase == LearnerPhase.EXITED for peer in others)
    return all(peer.exit_code == 0 for peer in others)
