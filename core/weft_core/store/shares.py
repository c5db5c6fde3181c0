"""What projects have used, for fair share (docs/fair-share.md).

The measure is the number of CPUs that a project has held on average, with a GPU counted as ``gpu_weight`` CPUs. The
past counts less and less: after each half-life, half as much. The ended attempts of a project are summed up in one row,
in the transaction that ends an attempt. Open attempts are added when somebody asks, so a crash can lose nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Float, Select, cast, func, literal, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_core.settings import FairShareSettings
from weft_core.store.models import Attempt, Learner, ProjectUsage

_OLDEST = 100.0
"""Half-lives. Older use counts for nothing, as Postgres refuses numbers that are too small for it."""


def averages(session: Session, settings: FairShareSettings, project_ids: Collection[str]) -> dict[str, float]:
    """The average of each of these projects, over all engines, up to now."""
    kept = select(ProjectUsage, func.now()).where(ProjectUsage.project_id.in_(project_ids))
    found = dict.fromkeys(project_ids, 0.0)
    for row, now in session.execute(kept):
        found[row.project_id] += _decayed(row, now, settings)
    opened = _added(settings).where(Attempt.ended_at.is_(None), Attempt.project_id.in_(project_ids))
    for project_id, added in session.execute(opened):
        found[project_id] += added
    return found


def record_use(session: Session, settings: FairShareSettings, attempt: Attempt) -> None:
    """Add what an attempt has used to its project's row, in the transaction that ends the attempt."""
    added = session.execute(_added(settings).where(Attempt.id == attempt.id)).one_or_none()
    first = insert(ProjectUsage).values(project_id=attempt.project_id, average=0.0, at=func.now())
    session.execute(first.on_conflict_do_nothing())
    row, now = session.execute(
        select(ProjectUsage, func.now())
        .where(ProjectUsage.project_id == attempt.project_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).one()
    row.average, row.at = _decayed(row, now, settings) + (added[1] if added else 0.0), now


def _added(settings: FairShareSettings) -> Select[str, Any]:
    """By project, what attempts add to its average: each learner, from its launch until it is gone."""
    cpus, gpus = (cast(Attempt.resources[name].astext, Float) for name in ("cpus", "gpus"))
    begun = func.greatest(func.coalesce(Learner.launched_at, Attempt.created_at), Attempt.held_at)
    gone = func.coalesce(Learner.left_at, func.now())
    part = _weight(gone, settings) - _weight(func.least(begun, gone), settings)
    return (
        select(Attempt.project_id, func.sum((cpus + literal(settings.gpu_weight, Float) * gpus) * part))
        .join(Learner, Learner.attempt_id == Attempt.id)
        .group_by(Attempt.project_id)
    )


def _weight(moment: ColumnElement[datetime], settings: FairShareSettings) -> ColumnElement[float]:
    """How much a moment still counts: 1 now, a half after a half-life."""
    half_lives = cast(func.extract("epoch", func.now() - moment), Float) / settings.half_life
    return func.power(literal(0.5, Float), func.least(func.greatest(half_lives, 0.0), _OLDEST))


def _decayed(row: ProjectUsage, now: datetime, settings: FairShareSettings) -> float:
    half_lives = max(0.0, (now - row.at).total_seconds() / settings.half_life)
    left = row.average * math.pow(0.5, min(half_lives, _OLDEST))
    return left if left > 1e-9 else 0.0
