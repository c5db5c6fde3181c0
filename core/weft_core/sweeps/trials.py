"""The trials of a sweep: how they are chosen, begun as jobs, and closed. The caller's transaction holds the sweep's
lock."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from weft_core.ids import new_id
from weft_core.lifecycle.states import Desired, JobState
from weft_core.manifest import Credentials, Manifest, Sweep, Value, manifest_text, parse_manifest
from weft_core.manifest.sweep_models import written
from weft_core.secrets import SecretBox
from weft_core.settings import Settings
from weft_core.store.checkpoints import shared_checkpoint
from weft_core.store.credentials import unseal_all
from weft_core.store.jobs import record_event
from weft_core.store.members import submitting_role
from weft_core.store.models import Job, JobMetric, SweepRow, SweepState, Trial, TrialState
from weft_core.store.packages import unpack_packages
from weft_core.store.scope import Scope
from weft_core.store.submitting import insert_job, job_row
from weft_core.sweeps.population import NobodyGoesOn, may_begin
from weft_core.sweeps.promoting import next_promotion, promote
from weft_core.sweeps.rungs import bracket_of
from weft_core.sweeps.search import BEST, LEARNING, NEWEST, Known, Proposal, is_better, is_good_enough, propose
from weft_core.sweeps.succession import choose, lock_source

OPEN = (SweepState.RUNNING, SweepState.PAUSED, SweepState.STOPPING)
"""The states of a sweep that has not ended."""
_ENV = "env."
_HALTS_AGAIN = timedelta(seconds=5)
_BUSY = timedelta(seconds=1)
"""After another transaction had the job of a trial that is to go on."""


@dataclass(frozen=True)
class Kit:
    """The requirements for making trials, besides the database."""

    settings: Settings
    box: SecretBox


def search_of(sweep: SweepRow) -> Sweep:
    """The sweep's search, from its manifest."""
    found = Manifest.model_validate(sweep.manifest).sweep
    assert found is not None
    return found


# --- ask ---


def ask(session: Session, sweep: SweepRow) -> Proposal:
    """The parameters of the next trial, by the sweep's search.

    Raises:
        NobodyGoesOn: it would have to begin with the checkpoint of an earlier trial, and there is none.
    """
    return decide(session, sweep, sweep.asked, sweep.told)


def decide(session: Session, sweep: SweepRow, number: int, seen: int) -> Proposal:
    """The parameters of the trial ``number``, as they are when ``seen`` trials have ended. Only rows of these and of
    earlier trials count, so a decision can be made once more, later and elsewhere."""
    search = search_of(sweep)
    if search.population is not None and number >= search.population:
        return choose(session, sweep, search, number)
    earlier = _earlier(session, sweep, search, number, seen) if search.search in LEARNING else []
    return propose(search, number, earlier)


def _earlier(session: Session, sweep: SweepRow, search: Sweep, number: int, seen: int) -> list[Known]:
    """The trials that a decision knows: some of the best, some of the newest, and those under way."""
    told = (Trial.sweep_id == sweep.id, Trial.state == TrialState.COMPLETED, Trial.told <= seen)
    order = Trial.value.desc() if search.goal == "max" else Trial.value.asc()
    best = session.scalars(select(Trial).where(*told).order_by(order, Trial.number).limit(BEST))
    newest = session.scalars(select(Trial).where(*told).order_by(Trial.told.desc()).limit(NEWEST))
    known = {trial.number: Known(trial.parameters, trial.value, trial.memory) for trial in (*best, *newest)}
    open_ = (Trial.sweep_id == sweep.id, Trial.number < number, or_(Trial.told.is_(None), Trial.told > seen))
    for trial in session.scalars(select(Trial).where(*open_).order_by(Trial.number.desc()).limit(NEWEST)):
        known[trial.number] = Known(trial.parameters, None, trial.memory)
    return [trial for _, trial in sorted(known.items())]


# --- begin ---


def trial_manifest(
    manifest: Manifest, parameters: Mapping[str, Value], kit: Kit, credentials: Mapping[str, Credentials]
) -> Manifest:
    """The manifest of the job of a trial.

    Raises:
        ManifestError: a value does not fit the key that it sets.
    """
    search = manifest.sweep
    assert search is not None
    sets = {
        parameter.set: written(parameters[name])
        for name, parameter in search.parameters.items()
        if parameter.set is not None
    }
    env = {path.removeprefix(_ENV): value for path, value in sets.items() if path.startswith(_ENV)}
    plain = manifest.model_copy(update={"sweep": None, "parameters": dict(parameters), "env": {**manifest.env, **env}})
    others = {path: value for path, value in sets.items() if not path.startswith(_ENV)}
    if not others:
        return plain
    by_endpoint = {
        (store.id, store.connection.auth_url): credentials[store.id]
        for store in manifest.data_stores
        if store.connection is not None and store.id in credentials
    }
    parsed = parse_manifest(manifest_text(plain), kit.settings, overrides=others, credentials=by_endpoint)
    pinned = {"repo": manifest.repo, "priority": manifest.priority}
    return parsed.manifest.model_copy(update=pinned)


def begin(
    session: Session, kit: Kit, sweep: SweepRow, proposal: Proposal, runs: bool = True
) -> tuple[Trial, list[str]]:
    """Make the next trial, and its job if it ``runs``.

    Returns:
        The trial, and the ids of the jobs to wake after the commit.

    Raises:
        ManifestError: its manifest can't be made.
    """
    scope, search = Scope(session, sweep.project_id), search_of(sweep)
    rung = bracket_of(search, sweep.asked).first if search.rungs and not search.population and runs else None
    at = sweep.asked // search.population if search.population else rung
    parameters = search.given(proposal.parameters, at)
    trial = Trial(
        sweep_id=sweep.id,
        number=sweep.asked,
        parameters=parameters,
        parent=proposal.parent,
        rung=rung,
        memory=proposal.memory,
        runs=runs,
        seen=sweep.told,
        state=TrialState.RUNNING.value,
    )
    woken: list[str] = []
    if runs:
        job, woken = _submit(scope, kit, sweep, parameters, proposal.parent)
        trial.job_id = job.id
    scope.add(trial)
    sweep.asked += 1
    session.flush()
    return trial, woken


def _submit(
    scope: Scope, kit: Kit, sweep: SweepRow, parameters: Mapping[str, Value], parent: int | None
) -> tuple[Job, list[str]]:
    credentials = unseal_all(kit.box, sweep.credentials)
    manifest = trial_manifest(Manifest.model_validate(sweep.manifest), parameters, kit, credentials)
    job = job_row(
        new_id("job"),
        sweep.user_id,
        manifest,
        sweep.code_sha256,
        labels={"sweep": sweep.id, "trial": str(sweep.asked)},
        pretrained_id=sweep.pretrained_id,
        budget_id=sweep.budget_id,
    )
    source = None if parent is None else scope.session.get_one(Trial, (sweep.id, parent)).job_id
    if source is not None:
        job.checkpoint_of = shared_checkpoint(source)
    overlay = insert_job(scope, kit.box, job, manifest, credentials, unpack_packages(sweep.packages, manifest))
    if source is not None:
        words = f"begins with the last checkpoint of {source}, trial {parent}"
        record_event(scope.session, job, "checkpoint", words, data=job.checkpoint_of)
    return job, [job.id] if overlay is None else [overlay.job_id, job.id]


# --- tell ---


def tell(session: Session, sweep: SweepRow, trial: Trial, state: TrialState, value: float | None, reason: str) -> None:
    """Close a trial. A ``value`` that is not finite makes it a failure."""
    search = search_of(sweep)
    if state is TrialState.COMPLETED and (value is None or not math.isfinite(value)):
        state, value = TrialState.FAILED, None
        reason = reason or f"the metric {search.metric} has no finite value"
    sweep.told += 1
    trial.state, trial.value, trial.reason = state.value, value, reason
    trial.told, trial.ended_at = sweep.told, func.now()
    if state is not TrialState.COMPLETED and sweep.best == trial.number:  # it was, on an earlier rung
        _find_best(session, sweep, search)
    if state is TrialState.FAILED:
        sweep.failures += 1
    elif state is TrialState.COMPLETED and value is not None:
        sweep.failures = 0
        if trial.rung is not None:
            trial.results = [*trial.results, value]
        if sweep.best_value is None or is_better(search, value, sweep.best_value):
            sweep.best, sweep.best_value = trial.number, value
    session.flush()
    _consider_ending(sweep, search, trial)


def _find_best(session: Session, sweep: SweepRow, search: Sweep) -> None:
    order = Trial.value.desc() if search.goal == "max" else Trial.value.asc()
    valued = (Trial.sweep_id == sweep.id, Trial.value.is_not(None))
    session.flush()
    best = session.execute(select(Trial.number, Trial.value).where(*valued).order_by(order, Trial.number).limit(1))
    sweep.best, sweep.best_value = best.one_or_none() or (None, None)


def _consider_ending(sweep: SweepRow, search: Sweep, trial: Trial) -> None:
    if sweep.state not in (SweepState.RUNNING, SweepState.PAUSED):
        return
    if trial.value is not None and is_good_enough(search, trial.value):
        reason = f"trial {trial.number} has reached {search.metric} = {trial.value:g}, and stop.value is"
        end(sweep, SweepState.COMPLETED, f"{reason} {search.stop.value:g}")
    elif sweep.failures >= search.stop.failures:
        message = f"{sweep.failures} trials in a row have failed, the last one, {trial.number}: {trial.reason}"
        end(sweep, SweepState.FAILED, message)


def tell_ended(session: Session, sweep: SweepRow) -> None:
    """Close the trials whose jobs have ended, in the order of their numbers."""
    search = search_of(sweep)
    best = JobMetric.max if search.goal == "max" else JobMetric.min
    metric = (JobMetric.job_id == Job.id) & (JobMetric.name == search.metric)
    mine = (Trial.sweep_id == sweep.id, Trial.state == TrialState.RUNNING, Trial.runs)
    query = (
        select(Trial, Job.state, Job.reason, best)
        .outerjoin(Job, Job.id == Trial.job_id)
        .outerjoin(JobMetric, metric)
        .where(*mine, or_(Trial.job_id.is_(None), Job.ended_at.is_not(None)))
        .order_by(Trial.number)
    )
    if sweep.state == SweepState.STOPPING:
        elsewhere = select(Trial).where(Trial.sweep_id == sweep.id, Trial.state == TrialState.RUNNING, ~Trial.runs)
        for trial in session.scalars(elsewhere.order_by(Trial.number)).all():
            tell(session, sweep, trial, TrialState.HALTED, None, "the sweep ended before its value was reported")
    for trial, state, reason, value in session.execute(query).all():
        if state is None:
            tell(session, sweep, trial, TrialState.HALTED, None, "its job was deleted")
        elif state == JobState.COMPLETED:
            missing = "" if value is not None else f"it has reported no finite value of the metric {search.metric}"
            tell(session, sweep, trial, TrialState.COMPLETED, value, missing)
        else:
            halted = state == JobState.HALTED
            tell(session, sweep, trial, TrialState.HALTED if halted else TrialState.FAILED, None, reason)


# --- the sweep itself ---


def end(sweep: SweepRow, state: SweepState, reason: str) -> None:
    """Let the sweep end as ``state`` as soon as its trials under way have been halted."""
    sweep.state, sweep.ends_as, sweep.reason, sweep.next_step_at = (
        SweepState.STOPPING.value,
        state.value,
        reason,
        func.now(),
    )


def advance(session: Session, kit: Kit, sweep: SweepRow) -> list[str]:
    """Close trials that have ended, begin those for which there is room, and end the sweep if nothing is left to do.

    Returns:
        The ids of the jobs to wake after the commit.

    Raises:
        ManifestError: the manifest of a trial can't be made any more.
    """
    tell_ended(session, sweep)
    search = search_of(sweep)
    under_way = sweep.asked - sweep.told
    woken: list[str] = []
    sweep.next_step_at = None
    late = _seconds_left(session, sweep, search)
    if sweep.state == SweepState.RUNNING and late is not None and late <= 0:
        search = search.model_copy(update={"trials": sweep.asked, "rungs": None})
        sweep.reason = "stop.after is over: no new trial begins"
    if sweep.state == SweepState.RUNNING and submitting_role(session, sweep.project_id, sweep.user_id) is None:
        sweep.state, sweep.reason = SweepState.PAUSED.value, "its user may not submit jobs to this project any more"
    busy = False
    if sweep.state == SweepState.RUNNING and search.search != "manual":
        while sweep.asked - sweep.told < search.parallel:
            if (number := next_promotion(session, sweep, search)) is not None:
                promoted = promote(session, sweep, search, number)
                if promoted is None:
                    busy = True
                    break
                woken += promoted
            elif sweep.asked < search.trials and may_begin(search, sweep.asked, sweep.told):
                try:
                    proposal = ask(session, sweep)
                except NobodyGoesOn as nobody:
                    end(sweep, SweepState.FAILED, str(nobody))
                    break
                if proposal.parent is not None and not lock_source(session, sweep, proposal.parent):
                    busy = True
                    break
                woken += begin(session, kit, sweep, proposal)[1]
            else:
                break
        under_way = sweep.asked - sweep.told
    if under_way and sweep.state == SweepState.STOPPING:
        sweep.next_step_at = func.now() + _HALTS_AGAIN  # for those that the worker could not halt before it died
    if under_way == 0:
        if sweep.state == SweepState.STOPPING:
            _close(sweep, SweepState(sweep.ends_as or SweepState.STOPPED), sweep.reason)
        elif sweep.state == SweepState.RUNNING and sweep.asked >= search.trials and not busy:
            _close(sweep, SweepState.COMPLETED, sweep.reason or "all trials have ended")
    if sweep.state == SweepState.RUNNING and late is not None and late > 0:
        sweep.next_step_at = func.now() + timedelta(seconds=late)
    if busy:
        sweep.next_step_at = func.now() + _BUSY
    session.flush()
    return woken


def _close(sweep: SweepRow, state: SweepState, reason: str) -> None:
    sweep.state, sweep.reason, sweep.ended_at, sweep.next_step_at = state.value, reason, func.now(), None
    sweep.credentials = None


def _seconds_left(session: Session, sweep: SweepRow, search: Sweep) -> float | None:
    """Until ``stop.after``; None: there is none."""
    after = search.stop.after_seconds
    if after is None:
        return None
    age = select(func.extract("epoch", func.now() - SweepRow.created_at)).where(SweepRow.id == sweep.id)
    return after - float(session.execute(age).scalar_one())


def to_halt(session: Session, sweep_id: str) -> Sequence[str]:
    """The jobs of a stopping sweep that have not been asked to end yet."""
    mine = (Trial.sweep_id == sweep_id, Trial.state == TrialState.RUNNING, Job.desired == Desired.RUNNING)
    return session.scalars(select(Job.id).join(Trial, Trial.job_id == Job.id).where(*mine).order_by(Job.id)).all()
