"""The plan of an engine's queue: reads from the database what admission decides about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import and_, false, or_, select, text
from sqlalchemy.orm import Session

from weft_core.engine import Capacity
from weft_core.launch import Placement, Resources
from weft_core.lifecycle.decide import backoff
from weft_core.lifecycle.states import Desired, JobState
from weft_core.settings import Settings
from weft_core.store.models import Attempt, Job, Learner, Member, Project, User
from weft_core.store.quotas import Quota, Usage, member_usage, usage
from weft_core.store.shares import averages
from weft_workers.admission import Plan, plan
from weft_workers.quotas import Allowance
from weft_workers.reconcile.load import attempt_view
from weft_workers.reconcile.queue import considered
from weft_workers.rooms import Request, Running
from weft_workers.shares import Share


def make_plan(
    session: Session,
    settings: Settings,
    engine: str,
    capacity: Capacity,
    now: datetime,
    unready: Collection[str],
) -> Plan:
    """Decide about the queue of an engine, whose row the caller has locked."""
    profile = Job.manifest["profile"].astext
    waiting = (
        select(Job.id, Job.project_id, Job.user_id, Job.priority, Job.learners, Job.manifest["resources"], profile)
        .add_columns(Job.manifest["elastic"], Job.failures, Attempt)
        .outerjoin(Attempt, and_(Attempt.job_id == Job.id, Attempt.n == Job.attempt))
        .where(Job.id.in_(select(considered(engine).c.id)))
        .order_by(Job.priority.desc(), Job.created_at, Job.id)
    )
    queue: list[Request] = []
    preempted: dict[str, str] = {}
    for job_id, project_id, user_id, priority, learners, resources, named, elastic, failures, last in session.execute(
        waiting
    ):
        if last is not None and not _rested(last, failures, now):
            continue
        least = elastic["min"] if elastic else None
        placement, ready = read_placement(settings, named), job_id not in unready
        each = read_resources(resources)
        queue.append(Request(job_id, learners, each, placement, least, project_id, user_id, priority, ready))
        if last is not None and attempt_view(last).preempted:
            preempted[job_id] = last.reason
    allowances = read_allowances(session, queue)
    running = read_running(session, settings, engine, now)
    shares = _shares(session, settings, queue, running)
    decided = plan(engine, capacity, running, queue, allowances, shares, settings.fair_share.preemption)
    for job_id in preempted.keys() & decided.waiting.keys():
        decided.waiting[job_id] = f"{preempted[job_id]}; {decided.waiting[job_id]}"
    return decided


def read_allowances(session: Session, queue: Sequence[Request]) -> dict[str, list[Allowance]]:
    """What is left of the limits on the jobs of the queue's projects, on all engines together, by project.

    The projects' rows are locked until the end of the transaction, so that the admissions of two engines never give the
    same room away. They are locked after the engine's row and before any job's, and not against rows that only refer to
    them.
    """
    nothing = text("'{}'::jsonb")
    limited = (
        select(Project)
        .where(Project.id.in_({request.project for request in queue}))
        .where(
            or_(
                Project.quota != nothing,
                Project.caps != nothing,
                and_(Project.borrows == false(), Project.guaranteed != nothing),
            )
        )
        .order_by(Project.id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    projects = session.scalars(limited).all() if queue else []
    held = usage(session, [project.id for project in projects]) if projects else {}
    found: dict[str, list[Allowance]] = {}
    for project in projects:
        used = held[project.id]
        found[project.id] = [Allowance(project.name, Quota.of(project.quota), used)] if project.quota else []
        if not project.borrows and project.guaranteed:
            words = f"guarantee of project {project.name}, which may not borrow"
            found[project.id].append(Allowance(project.name, Quota.of(project.guaranteed), used, limit=words))
    for project in projects:
        if project.caps:
            found[project.id] += _member_allowances(session, project, queue)
    return found


def _member_allowances(session: Session, project: Project, queue: Sequence[Request]) -> list[Allowance]:
    """What is left of the caps on the members whose jobs wait."""
    waiting = {request.user for request in queue if request.project == project.id}
    members = (
        select(Member.user_id, User.name, Member.role)
        .join(User, User.id == Member.user_id)
        .where(Member.project_id == project.id, Member.user_id.in_(waiting), Member.role.in_(project.caps))
        .order_by(Member.user_id)
    )
    rows = session.execute(members).all()
    held = member_usage(session, project.id) if rows else {}
    return [
        Allowance(
            project.name,
            Quota.of(project.caps[role]),
            held.get(user_id, Usage()),
            limit=f"cap on {user} ({role}) in project {project.name}",
            user=user_id,
        )
        for user_id, user, role in rows
    ]


def _shares(
    session: Session, settings: Settings, queue: Sequence[Request], running: Sequence[Running]
) -> dict[str, Share] | None:
    """The shares of all projects that have jobs here; None: only one project has, so that nothing is shared."""
    involved = {request.project for request in queue} | {attempt.project for attempt in running}
    if not queue or len(involved) < 2:
        return None
    projects = session.scalars(select(Project).where(Project.id.in_(involved))).all()
    used, past = usage(session, involved), averages(session, settings.fair_share, involved)
    return {
        project.id: Share(
            project.name,
            project.weight,
            past[project.id],
            used[project.id],
            Quota.of(project.guaranteed),
            settings.fair_share.gpu_weight,
        )
        for project in projects
    }


def read_running(session: Session, settings: Settings, engine: str, now: datetime) -> list[Running]:
    """The open attempts, with where the engine saw their learners, and where admission meant the others to be."""
    seen: dict[str, dict[int, str]] = defaultdict(dict)
    saved: dict[str, datetime] = {}
    started: dict[str, datetime] = {}
    placed = (
        select(Learner.attempt_id, Learner.rank, Learner.node, Learner.left_at, Learner.started_at, Learner.saved_at)
        .join(Attempt, Attempt.id == Learner.attempt_id)
        .where(
            Attempt.engine == engine,
            Attempt.ended_at.is_(None),
            or_(Learner.node.is_not(None), Learner.left_at.is_not(None), Learner.started_at.is_not(None)),
        )
    )
    gone: dict[str, set[int]] = defaultdict(set)  # lost by an elastic attempt, which holds nothing for them any more
    for attempt_id, rank, node, left_at, started_at, saved_at in session.execute(placed):
        if saved_at is not None:
            saved[attempt_id] = max(saved_at, saved.get(attempt_id, saved_at))
        if started_at is not None:
            started[attempt_id] = min(started_at, started.get(attempt_id, started_at))
        if left_at is not None:
            gone[attempt_id].add(rank)
        elif node is not None:
            seen[attempt_id][rank] = node
    opened = (
        select(Attempt.id, Attempt.resources, Job.manifest["profile"].astext, Job.id, Job.project_id, Job.priority)
        .add_columns(Job.state, Job.desired, Attempt.outcome, Attempt.preempted_by)
        .join(Job, Job.id == Attempt.job_id)
        .where(Attempt.engine == engine, Attempt.ended_at.is_(None))
        .order_by(Attempt.created_at, Attempt.id)
    )
    running = []
    for attempt_id, resources, named, job_id, project_id, priority, state, desired, outcome, by in session.execute(
        opened
    ):
        nodes, away = tuple(seen[attempt_id].values()), seen[attempt_id].keys() | gone[attempt_id]
        meant = tuple(node for rank, node in enumerate(resources.get("nodes", ())) if rank not in away)
        number, each = int(resources["learners"]) - len(gone[attempt_id]), read_resources(resources)
        since = saved.get(attempt_id) or started.get(attempt_id)
        lost = max(0.0, (now - since).total_seconds()) if since else 0.0
        running.append(
            Running(
                number,
                each,
                nodes,
                meant,
                read_placement(settings, named),
                job_id,
                project_id,
                priority,
                lost * number * (each.cpus + settings.fair_share.gpu_weight * each.gpus),
                ending=outcome is not None or by is not None or desired != Desired.RUNNING or state == JobState.STORING,
                preempted=by is not None,
            )
        )
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
