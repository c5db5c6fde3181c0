"""The rungs of a sweep in Postgres: how they stand, and how a trial goes on to its next rung. The caller's transaction
holds the sweep's lock."""

from __future__ import annotations

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from weft_core.lifecycle.states import Desired, JobState
from weft_core.manifest.sweep_models import Sweep
from weft_core.store.jobs import Conflict, reopen
from weft_core.store.models import Job, SweepRow, Trial, TrialState
from weft_core.store.packages import renew_overlay
from weft_core.store.scope import Scope
from weft_core.sweeps.rungs import Bracket, Standing, brackets, promotion


def next_promotion(session: Session, sweep: SweepRow, search: Sweep) -> int | None:
    """The number of the trial that goes on to its next rung; None: no trial does."""
    if search.rungs is None or search.population is not None:
        return None
    for bracket in brackets(search):
        begun = sweep.asked >= bracket.numbers.stop
        found = promotion(search.rungs, standings(session, sweep, search, bracket), begun)
        if found is not None:
            return found
    return None


def standings(session: Session, sweep: SweepRow, search: Sweep, bracket: Bracket) -> list[Standing]:
    """How the rungs of a bracket stand, its first one first."""
    rungs = search.rungs
    assert rungs is not None
    mine = (Trial.sweep_id == sweep.id, Trial.number >= bracket.numbers.start, Trial.number < bracket.numbers.stop)
    open_, done = (func.count().filter(Trial.state == state) for state in (TrialState.RUNNING, TrialState.COMPLETED))
    counts = select(Trial.rung, func.count(), open_, done).where(*mine, Trial.rung.is_not(None)).group_by(Trial.rung)
    known = {rung: numbers for rung, *numbers in session.execute(counts).all()}
    found, arrived = [], 0
    for rung in reversed(range(bracket.first, len(rungs.ends))):
        number, running, completed = known.get(rung, (0, 0, 0))
        arrived += number
        most = (arrived - running) // rungs.reduction
        if most == 0 or completed == 0 or rung == len(rungs.ends) - 1:  # so no trial waits here
            found.append(Standing(running, None))
            continue
        value = Trial.results[rung - bracket.first + 1]  # Postgres counts from 1
        waits = and_(
            Trial.rung == rung,
            Trial.state == TrialState.COMPLETED,
            Job.state == JobState.COMPLETED,
            Job.desired == Desired.RUNNING,
        )
        order = value.desc() if search.goal == "max" else value.asc()
        best = (
            select(
                Trial.number,
                waits.label("waits"),
                func.row_number().over(order_by=(order, Trial.number)).label("place"),
            )
            .outerjoin(Job, Job.id == Trial.job_id)
            .where(*mine, value.is_not(None))
            .order_by(order, Trial.number)
            .limit(most)
            .subquery()
        )
        first = select(best.c.number).where(best.c.waits).order_by(best.c.place).limit(1)
        found.append(Standing(running, session.scalars(first).one_or_none()))
    return found[::-1]


def may_go_on(scope: Scope, job: Job) -> str | None:
    """The sweep with rungs that has not ended, and of which the job is a trial. Its later results would replace the
    present ones."""
    query = scope.select(Trial, Trial.job_id == job.id, Trial.rung.is_not(None)).with_only_columns(Trial.sweep_id)
    open_ = query.join(SweepRow, SweepRow.id == Trial.sweep_id).where(SweepRow.ended_at.is_(None))
    return scope.session.scalars(open_).one_or_none()


def promote(session: Session, sweep: SweepRow, search: Sweep, number: int) -> list[str] | None:
    """Let a trial go on to its next rung: its job continues from its last checkpoint.

    Returns:
        The ids of the jobs to wake after the commit. None: another transaction has the job just now. A transaction that
        has a job's lock may wait for the sweep's, so this one must not wait for the job's.
    """
    rungs = search.rungs
    assert rungs is not None
    trial = session.get_one(Trial, (sweep.id, number))
    assert trial.rung is not None
    free = select(Job).where(Job.id == trial.job_id).with_for_update(skip_locked=True)
    job = session.scalars(free).one_or_none()
    if job is None:
        return None
    rung = trial.rung + 1
    try:
        reopen(session, job, {rungs.parameter: rungs.ends[rung]})
    except Conflict:  # it has been deleted since
        return None
    trial.rung, trial.parameters = rung, search.given(trial.parameters, rung)
    trial.state, trial.told, trial.ended_at = TrialState.RUNNING.value, None, None
    sweep.told -= 1
    overlay = renew_overlay(Scope(session, sweep.project_id), job)
    session.flush()
    return [job.id] if overlay is None else [overlay.job_id, job.id]
