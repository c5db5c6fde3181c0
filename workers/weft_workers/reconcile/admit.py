"""Admission of a job: one decision per engine, serialised by a lock on the engine's row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_core.engine import EngineUnreachable, Preparation
from weft_core.ids import new_id, run_name
from weft_core.lifecycle.elastic import cooldown
from weft_core.lifecycle.states import Desired, JobState
from weft_core.lifecycle.view import View
from weft_core.store.jobs import record_event, transition
from weft_core.store.models import Attempt, EngineStatus, Job, Learner
from weft_core.tokens import new_token
from weft_core.tracing import Attribute
from weft_core.words import count
from weft_workers.admission import Plan, binding, more
from weft_workers.context import Context
from weft_workers.lease import Lease, take
from weft_workers.observing import ObservedEngine
from weft_workers.reconcile.planning import make_plan, read_allowances, read_placement, read_resources, read_running
from weft_workers.reconcile.preparing import note_progress, prepare
from weft_workers.reconcile.queue import CONSIDERED
from weft_workers.rooms import Request

HEAD_POLL = 3.0
"""The first job of a queue checks for room this often, on behalf of all others: a node may have been added."""
TAIL_POLL = 30.0
IMAGE_POLL = 1.0
"""The first job whose image is still being made checks it this often, on behalf of all others."""
GROW_POLL, LOOK_AGAIN = 10.0, 2.0
"""An elastic job that could have more learners checks for room this often, and continues with its other steps."""


def admit(context: Context, lease: Lease, view: View) -> bool:
    """Admit the leased job if its turn has come, else write down why not. Returns whether it is due at once."""
    name = view.job.engine
    try:
        engine = context.engine(name)
        capacity = engine.capacity()
        unready = prepare(context, engine, capacity)
    except EngineUnreachable as error:
        with context.database.transaction() as session:
            taken = take(session, lease)
            _wait(session, taken.job, f"waiting for engine {name}, which does not answer: {error}")
            return taken.release(HEAD_POLL)
    with context.database.transaction() as session:
        _lock(session, engine)
        decided = make_plan(session, context.settings, name, capacity, view.now, unready)
        taken = take(session, lease)
        job = taken.job
        # The row is fresh and locked now: a halt that came in since the claim goes first.
        queued_at: datetime | None = None
        if job.desired == Desired.RUNNING and (place := decided.places.get(job.id)):
            queued_at = job.state_since
            _open_attempt(context, session, job, place)
            again = taken.release(0)
        elif (why := decided.impossible.get(job.id)) and not job.attempt:
            transition(session, job, JobState.FAILED, why, "S100")
            again = taken.release(None)
        elif job.id in decided.unready and unready[job.id].failed:
            transition(session, job, JobState.FAILED, unready[job.id].failed, unready[job.id].error_code)
            again = taken.release(None)
        elif job.id in decided.unready:
            note_progress(session, job, unready[job.id])
            again = taken.release(IMAGE_POLL if decided.unready[0] == job.id else TAIL_POLL)
        else:
            # Impossible, and yet it ran here before: a node is away just now, which is no reason to give up.
            behind = f"queued behind {count(CONSIDERED, 'job')} or more"
            _wait(session, job, decided.waiting.get(job.id) or why or behind)
            job.place = decided.places_in_queue.get(job.id)
            first = next(iter(decided.waiting), job.id) == job.id
            again = taken.release(HEAD_POLL if first else TAIL_POLL)
        woken = _tell_others(session, decided, unready, job.id)
    if queued_at is not None:
        context.metrics.waits.labels(name).observe((view.now - queued_at).total_seconds())
        told: dict[str, Attribute] = {"job": job.id, "attempt": job.attempt, "engine": name, "learners": job.learners}
        context.tracing.record("admission wait", job.traceparent, queued_at, view.now, **told)
    if job.state != JobState.QUEUED:
        context.wake.changed(job.id)
    for job_id in woken:
        context.wake.job(job_id)
    return again


def grow(context: Context, lease: Lease, view: View) -> bool:
    """Give a running elastic attempt as many more learners as fit and are allowed, unless another job waits for room.

    Returns whether the job is due at once, as there are some to be launched.
    """
    attempt, elastic = view.open, view.job.elastic
    assert attempt is not None
    assert elastic is not None
    engine = context.engine(view.job.engine)
    try:
        capacity = engine.capacity(fresh=True)
        unready = prepare(context, engine, capacity)
    except EngineUnreachable:
        capacity, unready = None, {}
    with context.database.transaction() as session:
        place: tuple[str, ...] = ()
        if capacity is not None and not capacity.queue and engine.grows_runs:
            _lock(session, engine)
            decided = make_plan(session, context.settings, engine.name, capacity, view.now, unready)
            mine = view.job.project_id
            of_no_concern = {job_id for job_id, project in decided.held_back.items() if project != mine}
            if not (decided.places or decided.waiting.keys() - of_no_concern):
                each = read_resources(view.job.manifest["resources"])
                placement = read_placement(context.settings, view.job.manifest.get("profile"))
                user = session.get_one(Job, view.job.id).user_id
                request = Request(view.job.id, 0, each, placement, project=mine, user=user)
                limits = binding(read_allowances(session, [request]), request)
                most = elastic.max - len(view.members)
                wanted = min((limit.learners(each, most, running=True) for limit in limits), default=most)
                running = read_running(session, context.settings, engine.name, view.now)
                place = more(capacity, running, replace(request, learners=wanted)) if wanted else ()
        taken = take(session, lease)
        row = session.get_one(Attempt, attempt.id)
        if not place or taken.asked is not None or taken.job.desired != Desired.RUNNING:
            row.grow_at = func.now() + timedelta(seconds=GROW_POLL)
            return taken.release(LOOK_AGAIN)
        first = len(view.learners)
        numbers = range(first, first + len(place))
        session.add_all(Learner(attempt_id=attempt.id, rank=rank, project_id=view.job.project_id) for rank in numbers)
        row.resources = {
            **row.resources, "learners": numbers.stop, "nodes": [*row.resources.get("nodes", ()), *place]
        }  # fmt: skip
        row.grow_at = func.now() + timedelta(seconds=cooldown(view))
        who = ", ".join(str(rank + 1) for rank in numbers)
        words = f"there is room for more: starting learner{'s' if len(place) > 1 else ''} {who}"
        record_event(session, taken.job, "elastic", words, data={"learners": [rank + 1 for rank in numbers]})
        taken.release(0)
    context.wake.changed(view.job.id)
    return True


def survey(context: Context, engine_name: str) -> None:
    """Room may have come free on an engine: have the jobs that fit now step at once, and renew all reasons."""
    try:
        engine = context.engine(engine_name)
        capacity = engine.capacity()
        unready = prepare(context, engine, capacity)
    except EngineUnreachable:
        return  # the first of the queue goes on asking
    with context.database.transaction() as session:
        _lock(session, engine)
        now = session.execute(select(func.now())).scalar_one()
        decided = make_plan(session, context.settings, engine_name, capacity, now, unready)
        woken = _tell_others(session, decided, unready, "")
    for job_id in woken:
        context.wake.job(job_id)


# --- the queue ---------------------------------------------------------------------------------------------------


def _lock(session: Session, engine: ObservedEngine) -> None:
    """Take the engine's row, before any job's: who holds a job's row never waits for this one."""
    locked = select(EngineStatus.name).where(EngineStatus.name == engine.name).with_for_update()
    if session.scalars(locked).one_or_none() is None:
        session.execute(insert(EngineStatus).values(name=engine.name, type=engine.kind).on_conflict_do_nothing())
        session.scalars(locked).one()


def _tell_others(session: Session, decided: Plan, unready: Mapping[str, Preparation], but: str) -> list[str]:
    """Make the other jobs that fit, that are to make room, or whose image can't be made, due at once; renew the reasons
    of those that wait. Returns whom to wake."""
    failed = [job_id for job_id in decided.unready if unready[job_id].failed]
    woken = sorted(job_id for job_id in (*decided.places, *decided.preempted, *failed) if job_id != but)
    rows = session.scalars(select(Job).where(Job.id.in_(woken)).order_by(Job.id).with_for_update()) if woken else ()
    for job in rows:
        job.next_step_at = func.now()
        if by := decided.preempted.get(job.id):
            mine = update(Attempt).where(Attempt.job_id == job.id, Attempt.ended_at.is_(None))
            session.execute(mine.where(Attempt.outcome.is_(None)).values(preempted_by=by))
    places = decided.places_in_queue
    # Best effort: a row that is locked is being stepped, and gets its reason there.
    others = [job_id for job_id in (*decided.waiting, *decided.unready) if job_id not in (but, *woken)]
    changed = (
        select(Job).where(Job.id.in_(others), Job.state == JobState.QUEUED.value).with_for_update(skip_locked=True)
    )
    for job in session.scalars(changed) if others else ():
        job.place = places.get(job.id)
        if why := decided.waiting.get(job.id):
            _wait(session, job, why)
        else:
            note_progress(session, job, unready[job.id])
    return woken


def _wait(session: Session, job: Job, reason: str) -> None:
    """Note why a job waits. An event only when the kind of reason changes, not with every number in it."""
    job.condition = None
    if job.reason == reason:
        return
    if _kind(job.reason) != _kind(reason):
        record_event(session, job, "waiting", reason)
    job.reason = reason


def _kind(reason: str) -> str:
    return re.sub(r"\d+(\.\d+)?|jobs?\b", "#", reason)


# --- the attempt -------------------------------------------------------------------------------------------------


def _open_attempt(context: Context, session: Session, job: Job, place: tuple[str, ...]) -> None:
    """Write the attempt and its learners, before anything exists on the engine."""
    n, token = job.attempt + 1, new_token("attempt")
    each = read_resources(job.manifest["resources"])
    attempt = Attempt(
        id=new_id("att"),
        project_id=job.project_id,
        job_id=job.id,
        n=n,
        engine=job.engine,
        run_name=run_name(job.id, n),
        resources={
            "cpus": each.cpus,
            "gpus": each.gpus,
            "memory": each.memory,
            "gpu_type": each.gpu_type,
            "extra": dict(each.extra),
            "learners": len(place),
            "nodes": list(place),
        },
        token_sha256=token.sha256,
        token_ciphertext=context.box.encrypt(token.plain),
    )
    session.add(attempt)
    session.flush()
    session.add_all(Learner(attempt_id=attempt.id, rank=rank, project_id=job.project_id) for rank in range(len(place)))
    job.attempt, job.condition, job.place = n, None, None
    where = f"{count(len(place), 'learner')} on engine {job.engine}"
    if len(place) < job.learners:
        where += f" ({job.learners} were asked for: more will join when there is room)"
    transition(session, job, JobState.PENDING, f"starting {where}" + (f", attempt {n}" if n > 1 else ""))
