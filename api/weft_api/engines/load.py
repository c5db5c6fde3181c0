"""The resources of engines that open attempts hold, node by node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from weft_api.engines.schemas import Amounts, NodeView
from weft_core.store.blames import Blamed
from weft_core.store.models import Attempt, EngineStatus, Learner


@dataclass
class Load:
    """The resources of an engine that open attempts hold."""

    attempts: int = 0
    used: Amounts = field(default_factory=Amounts)
    by_node: dict[str, Amounts] = field(default_factory=lambda: defaultdict(Amounts))


def loads(session: Session, engine: str | None = None) -> dict[str, Load]:
    """The load of ``engine``, or of all engines. A learner counts at the node that its engine reports, or else at the
    node that admission chose."""
    is_open = [Attempt.ended_at.is_(None)] + ([Attempt.engine == engine] if engine else [])
    seen: dict[str, dict[int, str]] = defaultdict(dict)
    placed = (
        select(Learner.attempt_id, Learner.rank, Learner.node)
        .join(Attempt, Attempt.id == Learner.attempt_id)
        .where(*is_open, Learner.node.is_not(None))
    )
    for attempt_id, rank, node in session.execute(placed):
        seen[attempt_id][rank] = node or ""
    found: dict[str, Load] = defaultdict(Load)
    opened = select(Attempt.id, Attempt.engine, Attempt.resources).where(*is_open)
    for attempt_id, name, resources in session.execute(opened):
        load, learners = found[name], int(resources.get("learners", 1))
        each = amounts(resources)
        load.attempts += 1
        load.used = plus(load.used, each, learners)
        nodes = dict(enumerate(resources.get("nodes", ()))) | seen[attempt_id]
        for node in list(nodes.values())[:learners]:
            load.by_node[node] = plus(load.by_node[node], each)
    return found


def node_views(row: EngineStatus | None, load: Load, ledger: Mapping[str, Blamed] | None = None) -> list[NodeView]:
    """The nodes that a worker last observed, with the resources in use, and the jobs that blame them."""
    kept = (row.capacity if row else None) or {}
    return [_node_view(node, load, (ledger or {}).get(node["name"], Blamed())) for node in kept.get("nodes", ())]


def _node_view(kept: Mapping[str, Any], load: Load, blamed: Blamed) -> NodeView:
    return NodeView(
        name=kept["name"],
        state="potential" if kept.get("potential") else "not ready" if kept.get("not_ready") else "ready",
        gpu_type=kept.get("gpu_type"),
        capacity=amounts(kept),
        used=load.by_node.get(kept["name"], Amounts()),
        busy=amounts(kept.get("busy") or {}),
        extra=kept.get("extra") or {},
        taints=kept.get("taints") or [],
        blames=len(blamed.jobs),
        excluded=blamed.excluded,
    )


def amounts(of: Mapping[str, Any]) -> Amounts:
    return Amounts(cpus=of.get("cpus") or 0, gpus=int(of.get("gpus") or 0), memory=int(of.get("memory") or 0))


def plus(base: Amounts, other: Amounts, times: int = 1) -> Amounts:
    return Amounts(
        cpus=round(base.cpus + other.cpus * times, 6),
        gpus=base.gpus + other.gpus * times,
        memory=base.memory + other.memory * times,
    )


def total(many: Iterable[Amounts]) -> Amounts:
    result = Amounts()
    for amount in many:
        result = plus(result, amount)
    return result


def left(node: NodeView) -> Amounts:
    """The free resources of a node."""
    rest = plus(plus(node.capacity, node.used, -1), node.busy, -1)
    return Amounts(cpus=max(0.0, rest.cpus), gpus=max(0, rest.gpus), memory=max(0, rest.memory))
