"""How many learners of a size an engine has room for."""

from __future__ import annotations

from dataclasses import dataclass

from weft_api.context import Context
from weft_api.engines.load import Load, left, loads, node_views
from weft_api.engines.schemas import Amounts, NodeView, RoomView
from weft_api.engines.service import check_engine
from weft_core.engine import gpu_type_fits
from weft_core.store.models import EngineStatus
from weft_core.store.row_security import across_projects
from weft_core.store.scope import Scope

_SLACK = 1e-6  # fractions of CPUs don't add up exactly


@dataclass(frozen=True)
class Size:
    """The resources of one learner; memory in bytes."""

    cpus: float
    gpus: int
    memory: int
    gpu_type: str | None


def show_room(context: Context, scope: Scope, name: str, size: Size) -> RoomView:
    """The room of an engine, node by node. Raises Problem not_found."""
    check_engine(context, name)
    row = scope.session.get(EngineStatus, name)
    if row is None or row.capacity is None:
        return RoomView(now=None, empty=None, potential=None, tainted=None)
    with across_projects(scope.session):
        nodes = node_views(row, loads(scope.session, name).get(name, Load()))
    suited = [node for node in nodes if not size.gpus or not size.gpu_type or _has_type(node, size.gpu_type)]
    there = [node for node in suited if node.state != "potential"]
    usual = [node for node in there if not node.taints]
    return RoomView(
        now=sum(_learners(left(node), size) for node in usual if node.state == "ready"),
        empty=sum(_learners(node.capacity, size) for node in usual),
        potential=sum(_learners(node.capacity, size) for node in suited if node.state == "potential"),
        tainted=sum(_learners(node.capacity, size) for node in there if node.taints),
    )


def _has_type(node: NodeView, gpu_type: str) -> bool:
    return node.capacity.gpus > 0 and gpu_type_fits(gpu_type, node.gpu_type)


def _learners(room: Amounts, size: Size) -> int:
    pairs = ((room.cpus, size.cpus), (room.gpus, size.gpus), (room.memory, size.memory))
    return max(0, min((int(there / asked + _SLACK) for there, asked in pairs if asked > 0), default=0))
