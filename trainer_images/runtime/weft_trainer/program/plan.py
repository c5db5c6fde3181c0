"""The processes that make up a learner's part of a training. A launcher plans them, and the supervisor runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Process(NamedTuple):
    """One process to start; ``env`` comes on top of the learner's environment."""

    argv: Sequence[str]
    env: Mapping[str, str] = {}
    label: str = ""  # put before each of its lines, when several processes write into one log


class Plan(NamedTuple):
    processes: Sequence[Process]
    """The learner ends when all of these have ended well, or with the first that does not."""
    helpers: Sequence[Process] = ()
    """Run from before the processes start until all learners have ended; a helper that ends early fails the learner."""
    await_ports: Sequence[tuple[str, int]] = ()
    """(address, port) that must take connections before the processes start."""
    slots: int = 1
    """How many workers share this learner's CPUs."""
