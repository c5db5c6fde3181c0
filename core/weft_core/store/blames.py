"""The ledger of nodes that were blamed. docs/kubernetes.md describes it for users.

A tenant's program can make its own learner vanish or hang, so no project alone may keep a node from the others. A node
is excluded only if several jobs blame it, and if these are of more than one project, unless no other project used the
engine in that time. However many nodes are blamed, at least half of an engine's nodes stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_core.engine import Capacity
from weft_core.settings import NodeSettings, Settings
from weft_core.store.models import Attempt, EngineStatus, Job, NodeBlame
from weft_core.store.queue import note_change

_LONGEST = 2000
"""Characters of a reason."""


@dataclass
class Blamed:
    """A node, by the rows that count."""

    jobs: set[str] = field(default_factory=set)
    projects: set[str] = field(default_factory=set)
    excluded: bool = False


def blame(session: Session, job: Job, attempt: int, node: str, reason: str) -> None:
    """Note that a node is blamed for what happened to an attempt; once for each attempt."""
    row = {"engine": job.engine, "node": node, "job": job.id, "project": job.project_id, "attempt": attempt}
    session.execute(insert(NodeBlame).values(**row, reason=reason[:_LONGEST]).on_conflict_do_nothing())
    note_change(session, job.engine)


def blamed_nodes(session: Session, engine: str, settings: NodeSettings) -> Mapping[str, Blamed]:
    """The nodes of an engine that were blamed lately and not forgiven; the caller sees all projects."""
    since = func.now() - timedelta(days=settings.blame_days)
    rows = select(NodeBlame.node, NodeBlame.job, NodeBlame.project).where(
        NodeBlame.engine == engine, NodeBlame.forgiven_at.is_(None), NodeBlame.created_at > since
    )
    found: dict[str, Blamed] = defaultdict(Blamed)
    for node, job, project in session.execute(rows):
        found[node].jobs.add(job)
        found[node].projects.add(project)
    suspects = {node: blamed for node, blamed in found.items() if len(blamed.jobs) >= settings.blames > 0}
    if suspects:
        users = select(func.count(Attempt.project_id.distinct())).where(
            Attempt.engine == engine, Attempt.created_at > since
        )
        enough = min(2, session.scalar(users) or 0)
        proved = [node for node, blamed in suspects.items() if len(blamed.projects) >= enough]
        proved.sort(key=lambda node: (-len(found[node].jobs), node))
        for node in proved[: _spare(session, engine)]:
            found[node].excluded = True
    return found


def nodes_to_avoid(session: Session, settings: Settings, engine: str) -> tuple[str, ...]:
    """The names of the nodes on which no learner is placed."""
    configured = settings.engines.get(engine)
    if not settings.nodes.blames or configured is None or not configured.avoids_nodes:
        return ()
    blamed = blamed_nodes(session, engine, settings.nodes)
    return tuple(sorted(node for node, found in blamed.items() if found.excluded))


def without_nodes(capacity: Capacity, names: Collection[str]) -> Capacity:
    """A capacity in which these nodes take no learners."""
    if not names:
        return capacity
    nodes = (replace(node, ready=node.ready and node.name not in names) for node in capacity.nodes)
    return replace(capacity, nodes=tuple(nodes))


def forgive(session: Session, engine: str, node: str) -> int:
    """Let the node's rows count no more. Returns their number."""
    rows = update(NodeBlame).where(NodeBlame.engine == engine, NodeBlame.node == node, NodeBlame.forgiven_at.is_(None))
    forgiven = session.execute(rows.values(forgiven_at=func.now()).returning(NodeBlame.id)).all()
    if forgiven:
        note_change(session, engine)
    return len(forgiven)


def _spare(session: Session, engine: str) -> int:
    """How many nodes may be excluded: half of those that a worker last saw."""
    row = session.get(EngineStatus, engine)
    nodes = ((row.capacity if row else None) or {}).get("nodes", ())
    return len([node for node in nodes if not node.get("potential")]) // 2
