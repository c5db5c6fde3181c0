"""The population of a sweep in Postgres. The caller's transaction holds the sweep's lock."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from weft_core.lifecycle.states import Desired, JobState
from weft_core.manifest.sweep_models import Sweep
from weft_core.store.models import Job, SweepRow, Trial, TrialState
from weft_core.store.retention import not_removed
from weft_core.sweeps.population import Ended, follow
from weft_core.sweeps.search import Proposal


def choose(session: Session, sweep: SweepRow, search: Sweep, number: int) -> Proposal:
    """The trial ``number``, of any rung but the first, when all trials of the rung before have ended.

    Raises:
        NobodyGoesOn: no trial of the rung before can be gone on from.
    """
    assert search.population is not None
    first = (number // search.population - 1) * search.population
    rows = (
        select(Trial.number, Trial.parameters, Trial.value, _lasts().label("lasts"))
        .outerjoin(Job, Job.id == Trial.job_id)
        .where(Trial.sweep_id == sweep.id, Trial.number >= first, Trial.number < first + search.population)
        .order_by(Trial.number)
    )
    before = [Ended(n, parameters, value, bool(lasts)) for n, parameters, value, lasts in session.execute(rows)]
    return follow(search, number, before)


def lock_source(session: Session, sweep: SweepRow, parent: int) -> bool:
    """Keep the job of a trial, and its checkpoints, until the caller's transaction has begun a trial with them.

    Returns:
        False if another transaction has the job just now, or has had it deleted. A transaction that has a job's lock
        may wait for the sweep's, so this one must not wait for the job's.
    """
    mine = (Trial.sweep_id == sweep.id, Trial.number == parent, _lasts())
    source = select(Job.id).join(Trial, Trial.job_id == Job.id).where(*mine)
    return session.scalar(source.with_for_update(read=True, key_share=True, skip_locked=True, of=Job)) is not None


def _lasts() -> ColumnElement[bool]:
    """Whether the checkpoints of a trial's job can be begun with."""
    return and_(
        Trial.state == TrialState.COMPLETED,
        Job.state == JobState.COMPLETED,
        Job.desired == Desired.RUNNING,
        not_removed("results"),
    )
