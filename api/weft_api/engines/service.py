"""Engines with their load and their queues. Engines belong to no project: their numbers are of the whole installation.
They name only the project's own waiting jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from weft_api.context import Context
from weft_api.engines.load import Load, left, loads, node_views, total
from weft_api.engines.schemas import (
    CatalogueView,
    EngineDetail,
    EngineView,
    ImageView,
    NodeCounts,
    NodeView,
    RunningAttempt,
    WaitingJob,
)
from weft_api.http.problems import NOT_FOUND, Problem
from weft_core.engine_settings import EngineSettings, KubernetesSettings, RaySettings
from weft_core.launch import Resources
from weft_core.lifecycle.states import JobState
from weft_core.store.blames import Blamed, blamed_nodes
from weft_core.store.models import Attempt, EngineStatus, Job, Learner, User
from weft_core.store.row_security import across_projects
from weft_core.store.scope import Scope

_STALE = timedelta(minutes=2)
"""Workers observe each engine about every ten seconds."""
_WAITING = 100


def list_engines(context: Context, session: Session) -> list[EngineView]:
    """The engines of the settings, as the workers last observed them."""
    seen = {row.name: row for row in session.scalars(select(EngineStatus))}
    queue = (Job.state == JobState.QUEUED.value) & (Job.predecessors == 0)
    waiting = select(Job.engine, func.count()).where(queue).group_by(Job.engine)
    queued, load = dict(session.execute(waiting).all()), loads(session)
    now = session.execute(select(func.now())).scalar_one()
    views = []
    for name in context.settings.engines:
        row, held = seen.get(name), load.get(name, Load())
        fields = _fields(context, name, row, held, node_views(row, held, _ledger(context, session, name)), now)
        views.append(EngineView(**fields, queued=queued.get(name, 0)))
    return views


def check_engine(context: Context, name: str) -> None:
    """Raises Problem not_found for an engine that the settings do not have."""
    if name not in context.settings.engines:
        raise Problem(NOT_FOUND, f"no engine {name[:100]!r}; there are: {', '.join(context.settings.engines)}")


def show_engine(context: Context, scope: Scope, name: str) -> EngineDetail:
    """An engine with its nodes and waiting jobs. Raises Problem not_found."""
    check_engine(context, name)
    session = scope.session
    row, now = session.get(EngineStatus, name), session.execute(select(func.now())).scalar_one()
    queue = (Job.engine == name) & (Job.state == JobState.QUEUED.value) & (Job.predecessors == 0)
    with across_projects(session):
        load = loads(session, name).get(name, Load())
        queued = session.scalar(select(func.count()).where(queue)) or 0
        waiting = _waiting(scope, queue)
        ledger = _ledger(context, session, name)
    of_own = session.scalar(scope.select(Job, queue).with_only_columns(func.count())) or 0
    nodes = node_views(row, load, ledger)
    return EngineDetail(
        **_fields(context, name, row, load, nodes, now),
        queued=queued,
        nodes=nodes,
        waiting=[*_starting(scope, name), *waiting],
        waiting_of_others=queued - of_own,
        attempts=_running(scope, name),
    )


def _ledger(context: Context, session: Session, name: str) -> Mapping[str, Blamed]:
    """The nodes that jobs of all projects blame."""
    avoids = context.settings.engines[name].avoids_nodes
    return blamed_nodes(session, name, context.settings.nodes) if avoids else {}


# --- the engine --------------------------------------------------------------------------------------------------


def _fields(
    context: Context, name: str, row: EngineStatus | None, load: Load, nodes: list[NodeView], now: datetime
) -> dict[str, Any]:
    ready = [node for node in nodes if node.state == "ready" and not node.excluded]
    known = row is not None and row.capacity is not None
    health, condition = _health(row, now)
    states = [node.state for node in nodes]
    return {
        "name": name,
        "type": context.settings.engines[name].type,
        "default": name == context.settings.default_engine,
        "health": health,
        "condition": condition,
        "capacity": total(node.capacity for node in ready) if known else None,
        "used": load.used,
        "busy": total(node.busy for node in ready) if known else None,
        "free": total(left(node) for node in ready) if known else None,
        "queue": (row.capacity or {}).get("queue", "") if row else "",
        "exposed": (row.capacity or {}).get("exposed", "") if row else "",
        "shared_network": (row.capacity or {}).get("shared_network", "") if row else "",
        "node_counts": NodeCounts(
            ready=states.count("ready"), not_ready=states.count("not ready"), potential=states.count("potential")
        ),
        "seen_at": row.seen_at if row else None,
        "unreachable_since": row.unreachable_since if row else None,
        "error": row.error if row else None,
        "running": load.attempts,
    }


def _health(row: EngineStatus | None, now: datetime) -> tuple[str, str | None]:
    if row and row.unreachable_since:
        return "unreachable", f"no answer since {_moment(row.unreachable_since)}: {row.error or 'no reason given'}"
    if row is None or row.seen_at is None:
        return "unseen", "no worker has looked at it yet"
    if now - row.seen_at > _STALE:
        return "unseen", f"no worker has looked at it since {_moment(row.seen_at)}"
    return "up", None


def _moment(then: datetime) -> str:
    return f"{then.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


# --- its queue ---------------------------------------------------------------------------------------------------


def _waiting(scope: Scope, queue: ColumnElement[bool]) -> list[WaitingJob]:
    """The project's queued jobs, with their places among all projects'."""
    by_age = func.row_number().over(order_by=(Job.priority.desc(), Job.created_at, Job.id))
    places = select(Job.id, func.coalesce(Job.place, by_age).label("place")).where(queue).subquery()
    own = scope.select(Job).join(places, places.c.id == Job.id).add_columns(places.c.place)
    rows = scope.session.execute(own.order_by(places.c.place, Job.created_at, Job.id).limit(_WAITING))
    return [_waiting_job(job, number) for job, number in rows]


def _starting(scope: Scope, name: str) -> list[WaitingJob]:
    """The project's jobs that are admitted, and whose learners the engine is starting (or its own queue holds back)."""
    own = scope.select(Job, Job.engine == name, Job.state == JobState.PENDING.value)
    rows = scope.all(own.order_by(Job.state_since, Job.id).limit(_WAITING))
    return [_waiting_job(job, None) for job in rows]


def _running(scope: Scope, name: str) -> list[RunningAttempt]:
    """The project's open attempts, with what their learners report."""
    opened = scope.select(Attempt, Attempt.engine == name, Attempt.ended_at.is_(None))
    rows = opened.join(Job, Job.id == Attempt.job_id).join(User, User.id == Job.user_id).add_columns(Job, User.name)
    found = scope.session.execute(rows.order_by(Attempt.created_at, Attempt.id).limit(_WAITING)).all()
    ids = [row[0].id for row in found]
    learners: dict[str, list[Learner]] = defaultdict(list)
    for learner in scope.all(scope.select(Learner, Learner.attempt_id.in_(ids)).order_by(Learner.rank)) if ids else ():
        learners[learner.attempt_id].append(learner)
    return [_running_attempt(attempt, job, user, learners[attempt.id]) for attempt, job, user in found]


def _running_attempt(attempt: Attempt, job: Job, user: str, learners: list[Learner]) -> RunningAttempt:
    held = attempt.resources
    count = int(held.get("learners", 1))
    idle = [learner.idle_since for learner in learners if learner.left_at is None]
    return RunningAttempt(
        job=job.id,
        name=job.name,
        user=user,
        state=job.state,
        attempt=attempt.n,
        learners=count,
        cpus=(held.get("cpus") or 0) * count,
        gpus=int(held.get("gpus") or 0) * count,
        nodes=sorted({learner.node for learner in learners if learner.node}),
        since=attempt.created_at,
        idle_since=max(at for at in idle if at) if idle and all(idle) else None,
    )


def _waiting_job(job: Job, place: int | None) -> WaitingJob:
    return WaitingJob(
        id=job.id,
        name=job.name,
        state="QUEUED" if job.state == JobState.QUEUED else "PENDING",
        place=place,
        priority=job.priority,
        learners=job.learners,
        resources=Resources(**job.manifest["resources"]),
        reason=job.reason,
        condition=job.condition,
        state_since=job.state_since,
    )


# --- the catalogue -----------------------------------------------------------------------------------------------


def show_catalogue(context: Context, session: Session) -> CatalogueView:
    """The images, and which engines have them as far as that is known."""
    seen = {row.name: row.capacity or {} for row in session.scalars(select(EngineStatus))}
    aliases = context.catalogue.aliases | context.settings.images.aliases
    return CatalogueView(
        images=[
            ImageView(
                reference=image.reference,
                name=image.name,
                version=image.version,
                digest=image.digest,
                frameworks=list(image.frameworks),
                devices=list(image.devices),
                aliases=[alias for alias, target in aliases.items() if target == image.reference],
                engines={
                    name: _has(settings, seen.get(name, {}).get("images"), image.reference)
                    for name, settings in context.settings.engines.items()
                },
                launchers=list(image.launchers),
                default_launcher=image.default_launcher,
            )
            for image in context.catalogue.images
        ],
        aliases=aliases,
    )


def _has(settings: EngineSettings, there: list[str] | None, reference: str) -> Literal["ready", "on demand", "unknown"]:
    """Whether an engine has an image: as the engine reports, else by its kind."""
    if there is not None:
        return "ready" if reference in there else "on demand"
    if isinstance(settings, KubernetesSettings):
        return "on demand"  # nodes pull it from the registry
    if isinstance(settings, RaySettings) and settings.environments.keys() & {reference, "*"}:
        return "ready"
    return "unknown"
