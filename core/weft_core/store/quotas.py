"""Quotas: what the running jobs of a project may hold at once, on all engines together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from weft_core.store.models import Attempt, Job, Learner


@dataclass(frozen=True)
class Quota:
    """None: no limit. Memory in bytes; ``jobs`` counts those that are admitted and not yet over."""

    cpus: float | None = None
    gpus: int | None = None
    memory: int | None = None
    jobs: int | None = None

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Quota:
        """As a project's row has it."""
        return cls(**{name: kept.get(name) for name in ("cpus", "gpus", "memory", "jobs")})


@dataclass(frozen=True)
class Usage:
    """The resources in use: the open attempts count, from their admission until their learners are gone."""

    cpus: float = 0.0
    gpus: int = 0
    memory: int = 0
    jobs: int = 0

    def plus(self, each: Any, learners: int, jobs: int = 1) -> Usage:
        """With ``learners`` more of ``each`` (something that has cpus, gpus and memory)."""
        return Usage(
            cpus=round(self.cpus + each.cpus * learners, 6),
            gpus=self.gpus + each.gpus * learners,
            memory=self.memory + each.memory * learners,
            jobs=self.jobs + jobs,
        )


@dataclass(frozen=True)
class _Each:
    cpus: float
    gpus: int
    memory: int


def member_usage(session: Session, project_id: str) -> dict[str, Usage]:
    """What the jobs of each member of a project hold, by the member's id."""
    opened = _opened().add_columns(Job.user_id).join(Job, Job.id == Attempt.job_id)
    held: dict[str, Usage] = {}
    for _, resources, gone, user_id in session.execute(opened.where(Attempt.project_id == project_id)):
        held[user_id] = _plus(held.get(user_id, Usage()), resources, gone)
    return held


def usage(session: Session, project_ids: Collection[str]) -> dict[str, Usage]:
    """The usage of each of these projects. Learners that an elastic attempt has lost do not count any more."""
    held = {project_id: Usage() for project_id in project_ids}
    for project_id, resources, gone in session.execute(_opened().where(Attempt.project_id.in_(project_ids))):
        held[project_id] = _plus(held[project_id], resources, gone)
    return held


def _opened() -> Select[str, dict[str, Any], int]:
    """The open attempts: their project's id, their resources, and how many learners they have lost."""
    lost = (
        select(func.count())
        .where(Learner.attempt_id == Attempt.id, Learner.left_at.is_not(None))
        .correlate(Attempt)
        .scalar_subquery()
    )
    return select(Attempt.project_id, Attempt.resources, lost).where(Attempt.ended_at.is_(None))


def _plus(held: Usage, resources: Mapping[str, Any], gone: int) -> Usage:
    each = _Each(float(resources["cpus"]), int(resources["gpus"]), int(resources["memory"]))
    return held.plus(each, int(resources["learners"]) - gone)
