"""The rest of the limits on a project's jobs while a queue is planned: of its quota, of its guarantee if it may not
borrow, and of the cap on one member.

It works as with room on an engine: the first job of a project that the quota holds back keeps its place. Its request is
set aside, so that the project's small jobs never starve a large one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft_core.launch import Resources
from weft_core.store.quotas import Quota, Usage
from weft_core.words import count, size

_SLACK = 1e-6  # fractions of CPUs don't add up exactly


@dataclass
class Allowance:
    """The rest of one limit; changed as jobs are planned."""

    project: str
    quota: Quota
    used: Usage = field(default_factory=Usage)
    kept: Usage = field(default_factory=Usage)
    """Set aside for a job that waits."""
    limit: str = ""
    """The name of the limit, in words; '': the quota of the project."""
    user: str | None = None
    """The id of the only member whom it binds; None: it binds the whole project."""

    def learners(self, each: Resources, most: int, running: bool = False) -> int:
        """How many learners of this kind may start, up to ``most``; of a job that is ``running``: besides it."""
        left = [
            (self.quota.cpus, self.used.cpus + self.kept.cpus, each.cpus),
            (self.quota.gpus, self.used.gpus + self.kept.gpus, each.gpus),
            (self.quota.memory, self.used.memory + self.kept.memory, each.memory),
        ]
        if self.quota.jobs is not None and not running and self.used.jobs + self.kept.jobs >= self.quota.jobs:
            return 0
        able = [int((limit - held) / asked + _SLACK) for limit, held, asked in left if limit is not None and asked > 0]
        return max(0, min([most, *able]))

    def take(self, each: Resources, learners: int) -> None:
        self.used = self.used.plus(each, learners)

    def hold_back(self, each: Resources, learners: int) -> str:
        """Why a job of so many learners has to wait; sets aside what it asks for, unless a job before it did."""
        waiting = f"waiting for {self.limit or f'quota of project {self.project}'}"
        if never := self._exceeds(Usage().plus(each, learners)):
            noun, asked, limit = never
            return f"{waiting}: asks {_amount(noun, asked)}, it has {_bare(noun, limit)}"
        full = self._exceeds(self.used.plus(each, learners))
        first = self.kept == Usage()
        if first:
            self.kept = Usage().plus(each, learners)
        if full is None:
            return f"queued behind a job that is {waiting}"
        noun, asked, limit = full
        held = {"job": self.used.jobs, "GPU": self.used.gpus, "CPU": self.used.cpus, "memory": self.used.memory}[noun]
        what = "memory in use" if noun == "memory" else "jobs running" if noun == "job" else f"{noun}s in use"
        reason = f"{waiting}: {_bare(noun, held)} of {_bare(noun, limit)} {what}"
        whose = "project" if self.user is None else "member"
        return reason if first else f"{reason}; queued behind a job of the {whose}"

    def _exceeds(self, wanted: Usage) -> tuple[str, float, float] | None:
        """The first limit that so much would exceed: its noun, how much, the limit."""
        for noun, asked, limit in (
            ("job", wanted.jobs, self.quota.jobs),
            ("GPU", wanted.gpus, self.quota.gpus),
            ("CPU", wanted.cpus, self.quota.cpus),
            ("memory", wanted.memory, self.quota.memory),
        ):
            if limit is not None and asked > limit + _SLACK:
                return noun, asked, limit
        return None


def _amount(noun: str, number: float) -> str:
    return f"{size(number)} of memory" if noun == "memory" else count(number, noun)


def _bare(noun: str, number: float) -> str:
    return size(number) if noun == "memory" else f"{number:g}"
