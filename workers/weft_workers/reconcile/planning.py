"""The plan of an engine's queue: reads the input of admission from the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import and_, false, or_, select, text
from sqlalchemy.orm import Session

from weft_core.engine import Capacity
from weft_core.lifecycle.decide import backoff
from weft_core.lifecycle.states import Desired, JobState
from weft_core.settings import Settings
from weft_core.store import budgets
from weft_core.store.models import Attempt, Job, Learner, Member, Project, User
from weft_core.store.quotas import Quota, Usage, member_usage, usage
from weft_core.store.shares import averages
from weft_workers.admission import Plan, plan
from weft_workers.context import Context
from weft_workers.purses import Purse
from weft_workers.quotas import Allowance
from weft_workers.reconcile.load import attempt_view
from weft_workers.rooms import Request, Running
from weft_workers.shares import Share
from weft_workers.waiting import Waiting, among, read_placement, read_queue, read_resources


@dataclass(frozen=True)
class Pauses:
    """The consequences of waiting jobs' last attempts."""

    until: Mapping[str, datetime]
    """The jobs that wait for the end of a pause after it, and then for their turn."""
    preempted: Mapping[str, str]
    """The jobs that were preempted, and the words for it."""


def read_pauses(session: Session, queue: Sequence[Waiting], now: datetime) -> Pauses:
    """Read the last attempts of the jobs that had one."""
    tried = {row.id: row for row in queue if row.attempt}
    until: dict[str, datetime] = {}
    preempted: dict[str, str] = {}
    last = select(Attempt).join(Job, and_(Job.id == Attempt.job_id, Job.attempt == Attempt.n))
    for row in session.scalars(last.where(among(Job.id, tried))) if tried else ():
        view = attempt_view(row)
        if row.ended_at is not None:
            end = row.ended_at + timedelta(seconds=backoff(view, tried[row.job_id].failures))
            if end > now:
                until[row.job_id] = end
        if view.preempted:
            preempted[row.job_id] = row.reason
    return Pauses(until, preempted)


@dataclass(frozen=True)
class Planned:
    """A plan, and the queue that it is about."""

    plan: Plan
    queue: Sequence[Waiting]
    """All jobs that wait, also those in a pause after their last attempt, which the plan leaves out."""
    pauses: Pauses


def make_plan(
    session: Session,
    context: Context,
    engine: str,
    capacity: Capacity,
    now: datetime,
    unready: Collection[str],
) -> Planned:
    """Decide about the queue of an engine, whose row the caller has locked."""
    settings, waiting = context.settings, read_queue(session, engine)
    pauses = read_pauses(session, waiting, now)
    known = context.requests.read(session, settings, engine, waiting)
    queue = [known[row.id] for row in waiting if row.id not in pauses.until]
    if unready:
        queue = [replace(request, ready=False) if request.job_id in unready else request for request in queue]
    allowances, held = read_allowances(session, queue)
    purses = read_purses(session, queue)
    running = read_running(session, settings, engine, now)
    shares = _shares(session, settings, queue, running, held)
    decided = plan(engine, capacity, running, queue, allowances, shares, settings.fair_share.preemption, purses)
    for job_id in pauses.preempted.keys() & decided.waiting.keys():
        decided.waiting[job_id] = f"{pauses.preempted[job_id]}; {decided.waiting[job_id]}"
    return Planned(decided, waiting, pauses)


def read_purses(session: Session, queue: Sequence[Request]) -> dict[str, Purse]:
    """The rest of the budgets of the queue's jobs, by id. They are locked until the end of the transaction, so that the
    admissions of two engines never reserve the same."""
    wanted = {request.budget for request in queue if request.budget is not None}
    budgets.lock(session, wanted)
    return {budget_id: Purse.of(standing) for budget_id, standing in budgets.standings(session, wanted).items()}


def read_allowances(
    session: Session, queue: Sequence[Request]
) -> tuple[dict[str, list[Allowance]], Mapping[str, Usage]]:
    """The rest of the limits on the jobs of the queue's projects, on all engines together, by project; and the
    resources that all of its projects hold, if one of them has a limit.

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
    held = usage(session, {request.project for request in queue}) if projects else {}
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
    return found, held


def _member_allowances(session: Session, project: Project, queue: Sequence[Request]) -> list[Allowance]:
    """The rest of the caps on the members whose jobs wait."""
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
    session: Session,
    settings: Settings,
    queue: Sequence[Request],
    running: Sequence[Running],
    held: Mapping[str, Usage],
) -> dict[str, Share] | None:
    """The shares of all projects that have jobs here; None: only one project has, so that nothing is shared."""
    involved = {request.project for request in queue} | {attempt.project for attempt in running}
    if not queue or len(involved) < 2:
        return None
    projects = session.scalars(select(Project).where(Project.id.in_(involved))).all()
    used = held if involved <= held.keys() else usage(session, involved)
    past = averages(session, settings.fair_share, involved)
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
