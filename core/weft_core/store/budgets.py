"""What is left of a budget, and the charges that attempts make to it (docs/budgets.md). All amounts are GPU-seconds.

What is used and reserved is the sum of the charges. There is no counter that a crash could leave wrong. The caller that
reserves holds the budget's lock; a settlement only gives back, so it needs none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, func, literal, select, update
from sqlalchemy.orm import Session

from weft_core.store.models import Attempt, Budget, Charge, Job, Learner

_SHORTEST = 60.0
"""Seconds of training for which a job starts at least. With less than that left, a budget is used up."""


@dataclass(frozen=True)
class Standing:
    """A budget, and what jobs have taken from it."""

    name: str
    limit: float
    used: float = 0.0
    reserved: float = 0.0
    """By attempts that have not ended."""

    @property
    def left(self) -> float:
        """What a job can reserve now."""
        return max(0.0, self.limit - self.used - self.reserved)


@dataclass(frozen=True)
class Need:
    """What a job reserves of a budget."""

    full: float
    """For its time limit, and for its last checkpoint after that."""
    least: float
    """With less than this, it does not start."""


def gpus_of(manifest: Mapping[str, Any], learners: int) -> int:
    """The GPUs that a job holds at most."""
    return int(manifest["resources"].get("gpus") or 0) * learners


def need(gpus: int, max_runtime: float, grace: float) -> Need:
    """What a job of so many GPUs reserves. ``grace``: seconds for its last checkpoint."""
    full = gpus * (max_runtime + grace)
    return Need(full, min(full, gpus * (_SHORTEST + grace)))


def hours(gpu_seconds: float) -> str:
    """``2.5`` for 9,000 GPU-seconds."""
    return f"{gpu_seconds / 3600:,.4g}"


def standings(session: Session, budget_ids: Collection[str]) -> dict[str, Standing]:
    """Each of these budgets, by its id."""
    if not budget_ids:
        return {}
    settled = Charge.settled_at.is_not(None)
    zero = literal(0.0)
    taken = [func.coalesce(func.sum(case((of, Charge.gpu_seconds), else_=zero)), zero) for of in (settled, ~settled)]
    query = (
        select(Budget.id, Budget.name, Budget.gpu_seconds, *taken)
        .outerjoin(Charge, Charge.budget_id == Budget.id)
        .where(Budget.id.in_(budget_ids))
        .group_by(Budget.id)
    )
    return {row[0]: Standing(row[1], row[2], float(row[3]), float(row[4])) for row in session.execute(query)}


def lock(session: Session, budget_ids: Collection[str]) -> None:
    """Lock these budgets until the end of the transaction, not against rows that only refer to them. Locked after the
    rows of projects and before those of jobs."""
    if budget_ids:
        rows = select(Budget.id).where(Budget.id.in_(budget_ids)).order_by(Budget.id)
        session.execute(rows.with_for_update(key_share=True)).all()


def reserve(session: Session, job: Job, attempt: Attempt, gpu_seconds: float) -> None:
    """Charge an attempt to its job's budget. The caller holds the budget's lock and has checked what is left."""
    assert job.budget_id is not None
    session.add(
        Charge(
            attempt_id=attempt.id,
            budget_id=job.budget_id,
            project_id=job.project_id,
            job_id=job.id,
            gpu_seconds=gpu_seconds,
        )
    )


def reserved_by(session: Session, attempt_id: str) -> tuple[str, float] | None:
    """The name of the budget to which an open attempt is charged, and how much it has reserved."""
    query = select(Budget.name, Charge.gpu_seconds).join(Budget, Budget.id == Charge.budget_id)
    row = session.execute(query.where(Charge.attempt_id == attempt_id)).one_or_none()
    return None if row is None else (row[0], row[1])


def settle(session: Session, attempt: Attempt) -> None:
    """Reduce the charge of an attempt that ends to what it has used: its GPUs, from the start of each learner to that
    learner's end. Other attempts have no charge."""
    gone = func.coalesce(Learner.left_at, Learner.exited_at, func.now())
    seconds = func.extract("epoch", func.greatest(gone, Learner.started_at) - Learner.started_at)
    held = select(func.coalesce(func.sum(seconds), 0.0)).where(
        Learner.attempt_id == attempt.id, Learner.started_at.is_not(None)
    )
    used = float(session.scalar(held) or 0.0) * int(attempt.resources["gpus"])
    charge = update(Charge).where(Charge.attempt_id == attempt.id, Charge.settled_at.is_(None))
    session.execute(charge.values(gpu_seconds=used, settled_at=func.now()))
