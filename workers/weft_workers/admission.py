"""Who starts next on an engine: a pure function of what the engine has, what runs there and who waits.

Jobs are looked at in the order of the queue. A gang starts whole or not at all, and its learners must really fit, node
by node. The first job that does not fit keeps its place: what it asks for is set aside, and later jobs get only what is
left after that, so that small jobs fill gaps without ever starving a large one (conservative backfill).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft_core.engine import Capacity, Node
from weft_core.launch import Resources
from weft_workers.texts import count, size

_SLACK = 1e-6  # fractions of CPUs don't add up exactly


@dataclass(frozen=True)
class Request:
    """A queued job."""

    job_id: str
    learners: int
    each: Resources


@dataclass(frozen=True)
class Running:
    """An open attempt."""

    learners: int
    each: Resources
    nodes: Sequence[str] = ()
    """Where admission had placed its learners, one name a learner; may be outdated or unknown."""


@dataclass
class Plan:
    """The decision about a whole queue."""

    places: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Jobs that start now, in order, with a node for each learner."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Jobs that wait, in order, and why."""
    impossible: dict[str, str] = field(default_factory=dict)
    """Jobs that would not fit if the engine were empty, and why."""


@dataclass
class _Room:
    """A node and what is free on it."""

    node: Node
    cpus: float
    gpus: int
    memory: int

    def slots(self, each: Resources, empty: bool = False) -> int:
        """How many learners of this size fit (if the node were empty)."""
        if each.gpus and each.gpu_type and (self.node.gpu_type or "").lower() != each.gpu_type.lower():
            return 0
        have: Node | _Room = self.node if empty else self
        pairs = ((have.cpus, each.cpus), (have.gpus, each.gpus), (have.memory, each.memory))
        return max(0, min((int(free / asked + _SLACK) for free, asked in pairs if asked > 0), default=1 << 30))

    def give(self, each: Resources, learners: int = 1) -> None:
        self.cpus -= each.cpus * learners
        self.gpus -= each.gpus * learners
        self.memory -= each.memory * learners


def plan(engine: str, capacity: Capacity, running: Sequence[Running], queue: Sequence[Request]) -> Plan:
    """Decide for every job of the queue (which is in order) whether it starts now, and if not, why."""
    rooms = [_Room(node, node.cpus, node.gpus, node.memory) for node in capacity.nodes]
    for one in running:
        _occupy(rooms, one)
    decided = Plan()
    reserved = False
    free = rooms
    for request in queue:
        if why := _impossible(engine, rooms, request):
            decided.impossible[request.job_id] = why
        elif place := _place(rooms, request):
            decided.places[request.job_id] = place
            if reserved:  # `free` has no reservation in it, and is kept for the reasons only
                _place(free, request)
        else:
            decided.waiting[request.job_id] = _reason(free, request, ahead=len(decided.waiting))
            if not reserved:
                reserved = True
                free = [_Room(room.node, room.cpus, room.gpus, room.memory) for room in rooms]
                _reserve(rooms, request)
    return decided


def _occupy(rooms: list[_Room], running: Running) -> None:
    """Subtract an open attempt: where it was placed, else where it fits, else from the emptiest node."""
    by_name = {room.node.name: room for room in rooms}
    placed = [name for name in running.nodes if name in by_name][: running.learners]
    for name in placed:
        by_name[name].give(running.each)
    rest = running.learners - len(placed)
    if rest and not _place(rooms, Request("", rest, running.each)):
        _reserve(rooms, Request("", rest, running.each))


def _place(rooms: list[_Room], request: Request) -> tuple[str, ...]:
    """Take room for the whole gang, the tightest nodes first; empty and nothing taken when it does not fit."""
    slots = [(room.slots(request.each), room) for room in rooms]
    if sum(number for number, _ in slots) < request.learners:
        return ()
    # GPU nodes last for learners without GPUs; then few nodes rather than many, and the fullest that will do.
    slots.sort(key=lambda one: (one[1].node.gpus > 0 and not request.each.gpus, -min(one[0], request.learners), one[0]))
    names: list[str] = []
    for number, room in slots:
        taken = min(number, request.learners - len(names))
        room.give(request.each, taken)
        names += [room.node.name] * taken
    return tuple(names)


def _reserve(rooms: list[_Room], request: Request) -> None:
    """Set aside what a gang asks for, on the nodes where most of it is free already."""
    for _ in range(request.learners):
        able = [room for room in rooms if room.slots(request.each, empty=True)] or rooms
        if able:
            freest = max(able, key=lambda room: (room.gpus if request.each.gpus else 0, room.cpus, room.memory))
            freest.give(request.each)


# --- the words ---------------------------------------------------------------------------------------------------


def _impossible(engine: str, rooms: list[_Room], request: Request) -> str:
    each, nodes = request.each, [room.node for room in rooms]
    if sum(room.slots(each, empty=True) for room in rooms) >= request.learners:
        return ""
    if not nodes:
        return f"can never fit: engine {engine} has no nodes"
    if each.gpus and each.gpu_type and not any(_has_type(node, each.gpu_type) for node in nodes):
        types = ", ".join(sorted({node.gpu_type for node in nodes if node.gpu_type and node.gpus})) or "none"
        return f"can never fit: asks GPUs of type {each.gpu_type}, engine {engine} has: {types}"
    for noun, asked, most in (
        ("GPU", each.gpus, max(node.gpus for node in nodes)),
        ("CPU", each.cpus, max(node.cpus for node in nodes)),
    ):
        if asked > most + _SLACK:
            largest = f"the largest node of engine {engine} has {most:g}"
            return f"can never fit: asks {count(asked, noun)} a learner, {largest}"
    if each.memory > (most := max(node.memory for node in nodes)):
        return (
            f"can never fit: asks {size(each.memory)} of memory a learner, "
            f"the largest node of engine {engine} has {size(most)}"
        )
    room = sum(one.slots(each, empty=True) for one in rooms)
    return (
        f"can never fit: asks {count(request.learners, 'learner')} of {_words(each)} each, "
        f"engine {engine} has room for {room} when it is empty"
    )


def _has_type(node: Node, gpu_type: str) -> bool:
    return node.gpus > 0 and (node.gpu_type or "").lower() == gpu_type.lower()


def _reason(free: list[_Room], request: Request, ahead: int) -> str:
    behind = f"queued behind {count(ahead, 'job')}" if ahead else ""
    if sum(room.slots(request.each) for room in free) >= request.learners:
        return behind or "waiting for admission"
    return "; ".join(part for part in (_shortage(free, request), behind) if part)


def _shortage(free: list[_Room], request: Request) -> str:
    """What there is too little of, in sum; else that it is scattered."""
    each, learners = request.each, request.learners
    if each.gpus:
        usable = [one for one in free if not each.gpu_type or _has_type(one.node, each.gpu_type)]
        left, total = sum(max(0, one.gpus) for one in usable), sum(one.node.gpus for one in usable)
        if left < each.gpus * learners:
            kind = f" of type {each.gpu_type}" if each.gpu_type else ""
            return f"waiting for {count(each.gpus * learners, 'GPU')}{kind}: {left} of {total} free"
    cpus, cpus_total = sum(max(0.0, one.cpus) for one in free), sum(one.node.cpus for one in free)
    if cpus + _SLACK < each.cpus * learners:
        return f"waiting for {count(each.cpus * learners, 'CPU')}: {cpus:g} of {cpus_total:g} free"
    memory, memory_total = sum(max(0, one.memory) for one in free), sum(one.node.memory for one in free)
    if memory < each.memory * learners:
        return f"waiting for {size(each.memory * learners)} of memory: {size(memory)} of {size(memory_total)} free"
    slots = sum(one.slots(each) for one in free)
    return f"waiting for room for {count(learners, 'learner')} of {_words(each)} each: there is room for {slots}"


def _words(each: Resources) -> str:
    parts = [count(each.gpus, "GPU")] if each.gpus else []
    return ", ".join([*parts, count(each.cpus, "CPU"), size(each.memory)])
