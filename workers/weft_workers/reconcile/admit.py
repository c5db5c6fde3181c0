"""Admission: one pass over an engine's queue decides about all jobs that wait there (docs/leases.md#admission).

A pass is made when something has changed, and seldom otherwise. A lock on the engine's row serialises the passes of
all workers. A pass writes all its decisions in one transaction, so a worker that dies in the middle of it has done
nothing, and the request for the pass is still there.
"""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import case, delete, exists, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_core.engine import Capacity, EngineUnreachable, Preparation
from weft_core.ids import new_id, run_name
from weft_core.lifecycle.states import Desired, JobState
from weft_core.store import budgets
from weft_core.store.blames import nodes_to_avoid, without_nodes
from weft_core.store.budgets import gpus_of
from weft_core.store.jobs import request_halt, transition
from weft_core.store.models import Attempt, EngineStatus, Job, Learner, Queue, QueueChange
from weft_core.store.queue import note_change, waits
from weft_core.tokens import new_token
from weft_core.tracing import Attribute
from weft_core.words import count
from weft_workers.admission import Plan
from weft_workers.context import Context
from weft_workers.observing import ObservedEngine
from weft_workers.reconcile.noting import Note, note_others, note_waiting
from weft_workers.reconcile.planning import Planned, make_plan, read_pauses
from weft_workers.reconcile.preparing import Prepared, prepare, unasked
from weft_workers.waiting import CONSIDERED, among, read_queue, read_resources

SAFETY = 30.0
"""Seconds after which a queue is planned again even without a request: use decays, and an earlier version notes no
changes."""
RETRY = 3.0
"""Seconds until an engine that did not answer is asked again."""
OBSERVE, OBSERVE_IMAGES = 3.0, 1.0
"""How often an engine for which jobs wait is asked whether it has changed; if images or packages are being made."""
REST = 0.5
"""The pause after a pass, as a multiple of its duration. Changes in this pause share the next pass."""
_AT_ONCE = 100
"""How many jobs are admitted in one transaction; the others follow at once in the next one."""


def admit(context: Context, name: str, stepped: str | None = None) -> bool:
    """Make a pass over an engine's queue if there is a reason for one. Returns False, having done nothing, while
    another process makes one, or has just made one.

    Args:
        stepped: a job that the caller steps afterwards. No other worker is woken for it: one of the two would wait for
            the other's claim in vain.
    """
    begun = time.monotonic()
    try:
        engine = context.engine(name)
        if _resting(context, name):
            return False
        capacity = engine.capacity()
        prepared = prepare(context, engine, capacity)
    except EngineUnreachable as error:
        made = _put_off(context, name, f"waiting for engine {name}, which does not answer: {error}")
        context.metrics.passes.labels(name).observe(time.monotonic() - begun)
        return made
    begun, outcome = time.monotonic(), _Outcome()
    with _no_collection(), context.database.transaction() as session:
        if not _lock(session, engine):
            return False
        if not _asked(session, name):
            return True
        now = session.execute(select(func.now())).scalar_one()
        usable = without_nodes(capacity, nodes_to_avoid(session, context.settings, name))
        planned = make_plan(session, context, name, usable, now, prepared.unready)
        _apply(context, session, engine, usable, prepared, planned, now, outcome)
        notes = _notes(planned, prepared.unready, {*outcome.due, *outcome.failed})
        noted_at = session.scalar(select(Queue.noted_at).where(Queue.engine == name))
        noted_at, again_at = note_waiting(session, notes, noted_at, now)
        if len(planned.queue) == CONSIDERED:
            note_others(session, name)
        safety = now + timedelta(seconds=SAFETY) if notes else None
        _remember(
            session,
            name,
            took=time.monotonic() - begun,
            next_pass_at=min(safety, again_at) if safety and again_at else safety,
            noted_at=noted_at,
            seen=_digest(capacity, prepared.unready),
            unready=len(planned.plan.unready),
            wanted=bool(planned.plan.waiting.keys() - planned.plan.held_back.keys()),
        )
    context.metrics.passes.labels(name).observe(time.monotonic() - begun)
    for job, queued_at in outcome.admitted:
        context.metrics.waits.labels(name).observe((now - queued_at).total_seconds())
        about: dict[str, Attribute] = {"job": job.id, "attempt": job.attempt, "engine": name, "learners": job.learners}
        context.tracing.record("admission wait", job.traceparent, queued_at, now, **about)
    for job_id in outcome.failed:
        context.wake.changed(job_id)
    for job_id in outcome.due:
        if job_id == stepped:
            context.wake.changed(job_id)
        else:
            context.wake.job(job_id)
    return True


@contextmanager
def _no_collection() -> Iterator[None]:
    """A pass over a long queue makes many objects that all live until its end. Garbage collection among them would take
    a third of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def ask(context: Context, name: str, job_id: str) -> bool:
    """A job that waits asks for its turn: a pass at once, or else in a moment. Returns whether there was one, after
    which the caller steps the job."""
    if admit(context, name, stepped=job_id):
        return True
    with context.database.transaction() as session:
        note_change(session, name)
    return False


def due(context: Context, name: str) -> bool:
    """Whether something asks for a pass over an engine's queue. Not jobs that were submitted: the sweep finds those."""
    noted = exists().where(QueueChange.engine == name)
    planned = exists().where(Queue.engine == name, Queue.next_pass_at <= func.now())
    with context.database.transaction() as session:
        return bool(session.scalar(select(or_(noted, planned))))


def observe(context: Context, name: str) -> None:
    """Observe an engine for which jobs wait, on behalf of all workers. Plan its queue again if its nodes, their use by
    others or its images have changed."""
    waiting = exists().where(Job.engine == name, Job.state == JobState.QUEUED.value)
    every = case((Queue.unready > 0, timedelta(seconds=OBSERVE_IMAGES)), else_=timedelta(seconds=OBSERVE))
    claim = (
        update(Queue)
        .where(Queue.engine == name, or_(Queue.next_look_at.is_(None), Queue.next_look_at <= func.now()), waiting)
        .values(next_look_at=func.now() + every)
        .returning(Queue.seen)
        .execution_options(synchronize_session=False)
    )
    with context.database.transaction() as session:
        seen = session.scalars(claim).one_or_none()
    if seen is None:
        return
    try:
        engine = context.engine(name)
        capacity = engine.capacity()
        prepared = prepare(context, engine, capacity)
    except EngineUnreachable:
        changed = True  # the pass says so
    else:
        changed = _digest(capacity, prepared.unready) != seen
    if changed:
        with context.database.transaction() as session:
            note_change(session, name)


# --- whether there is a pass -------------------------------------------------------------------------------------


def lock(session: Session, engine: ObservedEngine) -> None:
    """Wait for the engine's row and take it, before any job's. The holder of a job's row never waits for it."""
    locked = select(EngineStatus.name).where(EngineStatus.name == engine.name).with_for_update()
    if session.scalars(locked).one_or_none() is None:
        session.execute(insert(EngineStatus).values(name=engine.name, type=engine.kind).on_conflict_do_nothing())
        session.scalars(locked).one()


def _lock(session: Session, engine: ObservedEngine) -> bool:
    """Take the engine's row, unless somebody else has it."""
    session.execute(insert(EngineStatus).values(name=engine.name, type=engine.kind).on_conflict_do_nothing())
    free = select(EngineStatus.name).where(EngineStatus.name == engine.name).with_for_update(skip_locked=True)
    return session.scalars(free).one_or_none() is not None


def _resting(context: Context, name: str) -> bool:
    rest = func.make_interval(0, 0, 0, 0, 0, 0, Queue.took * REST)
    with context.database.transaction() as session:
        return bool(session.scalar(select(exists().where(Queue.engine == name, Queue.passed_at + rest > func.now()))))


def _asked(session: Session, name: str) -> bool:
    """Whether something still asks for a pass; the changes that were noted are taken, and count as seen."""
    if session.execute(delete(QueueChange).where(QueueChange.engine == name).returning(QueueChange.id)).first():
        return True
    # A queue without a row is an earlier version's.
    kept = (Queue.engine == name, Queue.passed_at.is_not(None))
    settled = exists().where(*kept, or_(Queue.next_pass_at.is_(None), Queue.next_pass_at > func.now()))
    submitted = exists().where(Job.engine == name, waits(), Job.next_step_at <= func.now())
    return bool(session.scalar(select(or_(~settled, submitted))))


def _remember(session: Session, name: str, **values: object) -> None:
    statement = insert(Queue).values(engine=name, passed_at=func.clock_timestamp(), **values)
    changed = {column: statement.excluded[column] for column in ("passed_at", *values)}
    session.execute(statement.on_conflict_do_update(index_elements=["engine"], set_=changed))


def _digest(capacity: Capacity, unready: Mapping[str, Preparation]) -> str:
    """A digest of the engine's answers; equal in all processes as long as nothing has changed."""
    nodes = sorted(capacity.nodes, key=lambda node: node.name)
    told = (nodes, capacity.queue, capacity.grows, sorted(capacity.images or ()), sorted(unready.items()))
    return hashlib.sha256(repr(told).encode()).hexdigest()


# --- what comes of it --------------------------------------------------------------------------------------------


@dataclass
class _Outcome:
    """The effects of a pass on the jobs that it did not leave waiting."""

    admitted: list[tuple[Job, datetime]] = field(default_factory=list)
    """With the moment since which each had been waiting."""
    failed: list[str] = field(default_factory=list)
    due: list[str] = field(default_factory=list)
    """Jobs that have something to do at once."""


def _apply(
    context: Context,
    session: Session,
    engine: ObservedEngine,
    capacity: Capacity,
    prepared: Prepared,
    planned: Planned,
    now: datetime,
    outcome: _Outcome,
) -> None:
    """Admit the jobs that fit, fail those that never will, and ask those that are to make room."""
    decided = planned.plan
    tried = {row.id for row in planned.queue if row.attempt}
    # A job that ran here before had a node that is away just now, which is no reason to give up.
    fails = {job_id: (why, "S100") for job_id, why in decided.impossible.items() if job_id not in tried}
    fails |= {
        job_id: (why.failed, why.error_code) for job_id in decided.unready if (why := prepared.unready[job_id]).failed
    }
    starts, ends, halts = (list(part)[:_AT_ONCE] for part in (decided.places, fails, decided.halted))
    wanted = {*starts, *ends, *halts, *decided.preempted}
    locked = select(Job).where(among(Job.id, wanted)).order_by(Job.id).with_for_update()
    rows = {row.id: row for row in session.scalars(locked)} if wanted else {}
    # The rows are fresh and locked now: a halt that came in since goes first. A step of an earlier version may be
    # working on one of the jobs.
    free = {row.id: row for row in rows.values() if _is_free(row, now)}
    starting = [free[job_id] for job_id in starts if job_id in free and _is_paid(free[job_id], decided)]
    later = unasked(session, engine, capacity, prepared, starting) if starting else set()
    for job in starting:
        if job.id not in later:
            outcome.admitted.append((job, job.state_since))
            attempt = _open_attempt(context, session, job, decided.places[job.id])
            if job.id in decided.reserved:
                budgets.reserve(session, job, attempt, decided.reserved[job.id][1])
            outcome.due.append(job.id)
    for job_id in ends:
        if job_id in free:
            transition(session, free[job_id], JobState.FAILED, *fails[job_id])
            outcome.failed.append(job_id)
    for job_id in halts:
        if job_id in free:
            request_halt(session, free[job_id], reason=decided.halted[job_id])
            outcome.due.append(job_id)
    for job_id in decided.preempted.keys() & rows.keys():
        mine = update(Attempt).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None), Attempt.outcome.is_(None))
        session.execute(mine.values(preempted_by=decided.preempted[job_id]))
        rows[job_id].next_step_at = func.now()
        outcome.due.append(job_id)
    if later or any(len(all_) > _AT_ONCE for all_ in (decided.places, fails, decided.halted)):
        note_change(session, engine.name)


def _is_free(job: Job, now: datetime) -> bool:
    heard = job.keepalive_until is None or job.keepalive_until > now
    waiting = job.state == JobState.QUEUED and job.desired == Desired.RUNNING and heard
    return waiting and (job.lease_until is None or job.lease_until < now)


def _is_paid(job: Job, decided: Plan) -> bool:
    """Whether the plan knew the budget that the job has now. A resume may have given it another one."""
    if job.budget_id is None or not gpus_of(job.manifest, job.learners):
        return True
    return job.id in decided.reserved and decided.reserved[job.id][0] == job.budget_id


def _open_attempt(context: Context, session: Session, job: Job, place: tuple[str, ...]) -> Attempt:
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
    job.attempt, job.condition, job.place, job.next_step_at = n, None, None, func.now()
    where = f"{count(len(place), 'learner')} on engine {job.engine}"
    if len(place) < job.learners:
        where += f" ({job.learners} were asked for: more will join when there is room)"
    transition(session, job, JobState.PENDING, f"starting {where}" + (f", attempt {n}" if n > 1 else ""))
    return attempt


# --- those that wait ---------------------------------------------------------------------------------------------


def _notes(planned: Planned, unready: Mapping[str, Preparation], gone: Collection[str]) -> list[Note]:
    """The notes for the jobs that go on waiting, in the order of the queue."""
    decided, places = planned.plan, planned.plan.places_in_queue
    rows, notes = {row.id: row for row in planned.queue if row.id not in gone}, []
    for job_id, place in places.items():
        if (row := rows.get(job_id)) is None:
            continue
        if why := decided.waiting.get(job_id) or decided.impossible.get(job_id) or decided.halted.get(job_id):
            notes.append(Note(row, why, place, row.keepalive_until))
        elif not (preparation := unready[job_id]).failed:
            notes.append(Note(row, preparation.progress, place, row.keepalive_until, preparation.kind))
    for job_id, end in planned.pauses.until.items():
        if (row := rows.get(job_id)) is not None:
            soonest = end if row.keepalive_until is None else min(end, row.keepalive_until)
            notes.append(Note(row, row.reason, None, soonest))
    return notes


def _put_off(context: Context, name: str, reason: str) -> bool:
    """The engine does not answer: its jobs say so, and it is asked again in a moment."""
    with context.database.transaction() as session:
        row = select(EngineStatus.name).where(EngineStatus.name == name)
        if session.scalar(row) is not None and session.scalar(row.with_for_update(skip_locked=True)) is None:
            return False
        _asked(session, name)
        now = session.execute(select(func.now())).scalar_one()
        queue = read_queue(session, name)
        pauses = read_pauses(session, queue, now)
        notes = [Note(row, reason, row.place, row.keepalive_until) for row in queue if row.id not in pauses.until]
        note_waiting(session, notes, None, now)
        _remember(session, name, next_pass_at=now + timedelta(seconds=RETRY), seen="")
    return True
