"""The watch: one observation of an engine for all attempts that run there undisturbed (docs/leases.md#jobs-that-run).

Such an attempt has no steps of its own until a limit of time may be reached. Every other step is due to a change.
Changes that only the engine sees are found here, in one comparison for all attempts, which reads a few small columns
and writes nothing as long as nothing has happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import timedelta

from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_core.engine import EngineUnreachable, Observation
from weft_core.lifecycle.deadlines import POLL
from weft_core.lifecycle.notes import tells_unreachable
from weft_core.lifecycle.sightings import Whereabouts, undisturbed
from weft_core.lifecycle.states import LearnerPhase
from weft_core.store.models import Attempt, Job, Learner, Queue
from weft_workers.context import Context
from weft_workers.waiting import among

EVERY = 1.5
"""Seconds between two observations of an engine, on behalf of all workers; shorter than :data:`POLL`."""


def watch(context: Context, name: str) -> list[str]:
    """Make the jobs due about which an engine has news; returns their ids. One process does it at a time."""
    with context.database.transaction() as session:
        if not _claim(session, name):
            return []
    with context.database.transaction() as session:  # another one: passes write the row of the claim, too
        quiet = _quiet(session, name)
    if not quiet:
        return []
    runs: Mapping[str, Observation] | None
    try:
        runs = context.engine(name).observe(fresh=True).answer
    except EngineUnreachable:
        runs = None
    news = [job_id for (job_id, run, condition), learners in quiet.items() if _new(runs, run, condition, learners)]
    if news:
        with context.database.transaction() as session:
            make_due(session, news)
    return news


def wake_strangers(context: Context) -> None:
    """Make the jobs due that run on engines which are not in the settings (any more): nobody watches those."""
    strangers = (
        select(Job.id)
        .join(Attempt, and_(Attempt.job_id == Job.id, Attempt.ended_at.is_(None)))
        .where(Job.engine.not_in(list(context.engines)))
    )
    with context.database.transaction() as session:
        make_due(session, session.scalars(strangers).all())


def make_due(session: Session, job_ids: Collection[str]) -> None:
    """Make jobs due that nobody steps just now. The worker that has a job's lease sees the same soon."""
    if not job_ids:
        return
    # In the order of ids, as wherever several jobs are locked: two transactions can't wait for each other.
    free = (
        select(Job.id)
        .where(among(Job.id, job_ids), Job.lease_until.is_(None), Job.next_step_at.is_not(None))
        .order_by(Job.id)
        .with_for_update()
    )
    due = session.scalars(free).all()
    session.execute(
        update(Job)
        .where(among(Job.id, due), Job.next_step_at > func.now())
        .values(next_step_at=func.now())
        .execution_options(synchronize_session=False)
    )


def _claim(session: Session, name: str) -> bool:
    """Whether it is time to observe the engine, and no other process does."""
    observed = insert(Queue).values(engine=name, next_watch_at=func.now() + timedelta(seconds=EVERY))
    free = or_(Queue.next_watch_at.is_(None), Queue.next_watch_at <= func.now())
    claim = observed.on_conflict_do_update(
        index_elements=["engine"], set_={"next_watch_at": observed.excluded.next_watch_at}, where=free
    )
    return session.scalars(claim.returning(Queue.engine)).one_or_none() is not None


def _quiet(session: Session, name: str) -> Mapping[tuple[str, str, str | None], list[Whereabouts]]:
    """The attempts that no step will observe soon: job, run and condition, and their learners."""
    rows = (
        select(Job.id, Attempt.run_name, Job.condition, Learner.rank, Learner.node, Learner.phase)
        .join(Attempt, Attempt.job_id == Job.id)
        .join(Learner, Learner.attempt_id == Attempt.id)
        .where(
            Attempt.ended_at.is_(None),
            Attempt.outcome.is_(None),
            Attempt.launched_at.is_not(None),
            Learner.left_at.is_(None),
            Job.engine == name,
            Job.lease_until.is_(None),
            Job.next_step_at > func.now() + timedelta(seconds=POLL),
        )
    )
    found: dict[tuple[str, str, str | None], list[Whereabouts]] = defaultdict(list)
    for job_id, run, condition, rank, node, phase in session.execute(rows):
        found[job_id, run, condition].append(Whereabouts(rank, node, phase == LearnerPhase.EXITED))
    return found


def _new(
    runs: Mapping[str, Observation] | None, run: str, condition: str | None, learners: Collection[Whereabouts]
) -> bool:
    """Whether the engine's answer (None: there is none) differs from what the job's last step has noted."""
    if runs is None or tells_unreachable(condition):
        return (runs is None) != tells_unreachable(condition)
    return not undisturbed(runs.get(run), learners)
