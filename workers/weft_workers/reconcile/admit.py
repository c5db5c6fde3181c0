"""Admission of a job: one decision per engine, serialised by a lock on the engine's row."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, func, or_, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_core.engine import Capacity, EngineUnreachable, Preparation
from weft_core.ids import new_id, run_name
from weft_core.launch import Placement, Resources
from weft_core.lifecycle.decide import backoff
from weft_core.lifecycle.elastic import cooldown
from weft_core.lifecycle.states import Desired, JobState
from weft_core.lifecycle.view import View
from weft_core.settings import Settings
from weft_core.store.jobs import record_event, transition
from weft_core.store.models import Attempt, EngineStatus, Job, Learner, Project
from weft_core.store.quotas import Quota, usage
from weft_core.tokens import new_token
from weft_core.tracing import Attribute
from weft_core.words import count
from weft_workers.admission import Plan, Request, Running, more, plan
from weft_workers.context import Context
from weft_workers.lease import Lease, take
from weft_workers.observing import ObservedEngine
from weft_workers.quotas import Allowance
from weft_workers.reconcile.load import attempt_view
from weft_workers.reconcile.preparing import note_progress, prepare

HEAD_POLL = 3.0
"""The first job of a queue checks for room this often, on behalf of all others: a node may have been added."""
TAIL_POLL = 30.0
IMAGE_POLL = 1.0
"""The first job whose image is still being made checks it this often, on behalf of all others."""
GROW_POLL, LOOK_AGAIN = 10.0, 2.0
"""An elastic job that could have more learners checks for room this often, and continues with its other steps."""
_QUEUE = 1000
"""So many waiting jobs are considered; the others are behind them in the queue."""


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
        decided = _plan(session, context.settings, name, capacity, view.now, unready)
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
            _wait(session, job, decided.waiting.get(job.id) or why or f"queued behind {count(_QUEUE, 'job')} or more")
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
            decided = _plan(session, context.settings, engine.name, capacity, view.now, unready)
            mine = view.job.project_id
            of_no_concern = {job_id for job_id, project in decided.held_back.items() if project != mine}
            if not (decided.places or decided.waiting.keys() - of_no_concern):
                wanted = elastic.max - len(view.members)
                if allowance := _allowances(session, {mine}).get(mine):
                    each = read_resources(view.job.manifest["resources"])
                    wanted = allowance.learners(each, wanted, running=True)
                placement = read_placement(context.settings, view.job.manifest.get("profile"))
                request = Request(view.job.id, wanted, read_resources(view.job.manifest["resources"]), placement)
                place = more(capacity, _running(session, context.settings, engine.name), request) if wanted else ()
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
        decided = _plan(session, context.settings, engine_name, capacity, now, unready)
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


def _plan(
    session: Session,
    settings: Settings,
    engine: str,
    capacity: Capacity,
    now: datetime,
    unready: Collection[str],
) -> Plan:
    profile = Job.manifest["profile"].astext
    waiting = (
        select(Job.id, Job.project_id, Job.learners, Job.manifest["resources"], profile, Job.manifest["elastic"])
        .add_columns(Job.failures, Attempt)
        .outerjoin(Attempt, and_(Attempt.job_id == Job.id, Attempt.n == Job.attempt))
        .where(Job.engine == engine, Job.state == JobState.QUEUED.value, Job.desired == Desired.RUNNING.value)
        .order_by(Job.priority.desc(), Job.created_at, Job.id)
        .limit(_QUEUE)
    )
    queue = [
        Request(
            job_id,
            learners,
            read_resources(resources),
            read_placement(settings, named),
            elastic["min"] if elastic else None,
            project_id,
            ready=job_id not in unready,
        )
        for job_id, project_id, learners, resources, named, elastic, failures, last in session.execute(waiting)
        if last is None or _rested(last, failures, now)
    ]
    allowances = _allowances(session, {request.project for request in queue})
    return plan(engine, capacity, _running(session, settings, engine), queue, allowances)


def _allowances(session: Session, project_ids: set[str]) -> dict[str, Allowance]:
    """The rest of the quotas of those projects that have any, on all engines together.

    The projects' rows are locked until the end of the transaction, so that the admissions of two engines never give the
    same room away. They are locked after the engine's row and before any job's, and not against rows that only refer to
    them.
    """
    limited = (
        select(Project)
        .where(Project.id.in_(project_ids), Project.quota != text("'{}'::jsonb"))
        .order_by(Project.id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    projects = session.scalars(limited).all() if project_ids else []
    held = usage(session, [project.id for project in projects]) if projects else {}
    return {project.id: Allowance(project.name, Quota.of(project.quota), held[project.id]) for project in projects}


def _running(session: Session, settings: Settings, engine: str) -> list[Running]:
    """The open attempts, with where the engine saw their learners, and where admission meant the others to be."""
    seen: dict[str, dict[int, str]] = defaultdict(dict)
    placed = (
        select(Learner.attempt_id, Learner.rank, Learner.node, Learner.left_at)
        .join(Attempt, Attempt.id == Learner.attempt_id)
        .where(
            Attempt.engine == engine,
            Attempt.ended_at.is_(None),
            or_(Learner.node.is_not(None), Learner.left_at.is_not(None)),
        )
    )
    gone: dict[str, set[int]] = defaultdict(set)  # lost by an elastic attempt, which holds nothing for them any more
    for attempt_id, rank, node, left_at in session.execute(placed):
        if left_at is None:
            seen[attempt_id][rank] = node or ""
        else:
            gone[attempt_id].add(rank)
    opened = (
        select(Attempt.id, Attempt.resources, Job.manifest["profile"].astext)
        .join(Job, Job.id == Attempt.job_id)
        .where(Attempt.engine == engine, Attempt.ended_at.is_(None))
        .order_by(Attempt.created_at, Attempt.id)
    )
    running = []
    for attempt_id, resources, named in session.execute(opened):
        nodes, away = tuple(seen[attempt_id].values()), seen[attempt_id].keys() | gone[attempt_id]
        meant = tuple(node for rank, node in enumerate(resources.get("nodes", ())) if rank not in away)
        number = int(resources["learners"]) - len(gone[attempt_id])
        running.append(Running(number, read_resources(resources), nodes, meant, read_placement(settings, named)))
    return running


def _rested(last: Attempt, failures: int, now: datetime) -> bool:
    """Whether a job's pause after its last attempt is over."""
    return last.ended_at is None or (now - last.ended_at).total_seconds() >= backoff(attempt_view(last), failures)


def read_resources(manifest: Mapping[str, Any]) -> Resources:
    """A manifest's resources of one learner."""
    return Resources(
        cpus=float(manifest["cpus"]),
        gpus=int(manifest["gpus"]),
        memory=int(manifest["memory"]),
        storage=manifest.get("storage"),
        gpu_type=manifest.get("gpu_type"),
        extra=manifest.get("extra") or {},
    )


def read_placement(settings: Settings, profile: str | None) -> Placement:
    """Where a job's profile lets its learners run; one that is gone from the settings: anywhere."""
    found = settings.profiles.get(profile or "")
    if found is None:
        return Placement()
    return Placement(
        node_selector=found.node_selector,
        tolerations=tuple(found.tolerations),
        affinity=found.affinity,
        priority_class=found.priority_class,
        image_pull_secrets=tuple(found.image_pull_secrets),
    )


def _tell_others(session: Session, decided: Plan, unready: Mapping[str, Preparation], but: str) -> list[str]:
    """Make the other jobs that fit, or whose image can't be made, due at once; renew the reasons of those that wait.
    Returns whom to wake."""
    failed = [job_id for job_id in decided.unready if unready[job_id].failed]
    woken = sorted(job_id for job_id in (*decided.places, *failed) if job_id != but)
    rows = session.scalars(select(Job).where(Job.id.in_(woken)).order_by(Job.id).with_for_update()) if woken else ()
    for job in rows:
        job.next_step_at = func.now()
    # Best effort: a row that is locked is being stepped, and gets its reason there.
    others = [job_id for job_id in (*decided.waiting, *decided.unready) if job_id not in (but, *woken)]
    changed = (
        select(Job).where(Job.id.in_(others), Job.state == JobState.QUEUED.value).with_for_update(skip_locked=True)
    )
    for job in session.scalars(changed) if others else ():
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
    job.attempt, job.condition = n, None
    where = f"{count(len(place), 'learner')} on engine {job.engine}"
    if len(place) < job.learners:
        where += f" ({job.learners} were asked for: more will join when there is room)"
    transition(session, job, JobState.PENDING, f"starting {where}" + (f", attempt {n}" if n > 1 else ""))
