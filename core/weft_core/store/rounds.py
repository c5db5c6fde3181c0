"""The rounds and learners of an elastic attempt, read from their rows."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from weft_core.lifecycle import rounds
from weft_core.store.models import Learner, Round


def read_rounds(session: Session, attempt_id: str) -> list[rounds.Round]:
    """The last two, in order."""
    rows = session.scalars(select(Round).where(Round.attempt_id == attempt_id).order_by(Round.n.desc()).limit(2))
    return [
        rounds.Round(row.n, row.opened_at, row.closed_at, tuple(row.members), row.restart, row.reason)
        for row in reversed(rows.all())
    ]


def round_learner(row: Learner) -> rounds.RoundLearner:
    return rounds.RoundLearner(
        number=row.rank,
        arrived=row.arrived,
        arrived_at=row.arrived_at,
        broken=row.broken,
        left=row.left_at is not None,
        left_reason=row.left_reason or "",
        started=row.started_at is not None,
        finished=row.exit_code == 0,
    )


def clock(session: Session) -> datetime:
    """The time on the database's clock."""
    return session.execute(select(func.now())).scalar_one()
