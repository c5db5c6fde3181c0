"""The jobs that start next on an engine: a pure function of the engine's capacity, its open attempts and its queue.

Jobs are considered in the order of the queue. A gang starts whole or not at all, and its learners must really fit, node
by node. The first job that does not fit keeps its place: its request is set aside, and later jobs get only the room
that is left after that. Small jobs therefore fill gaps and never starve a large job (conservative backfill).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft_core.engine import Capacity, Node, gpu_type_fits
from weft_core.launch import Placement, Resources
from weft_core.words import count, size
from weft_workers.quotas import Allowance

_SLACK = 1e-6  # fractions of CPUs don't add up exactly


@dataclass(frozen=True)
class Request:
    """A queued job."""

    job_id: str
    learners: int
    each: Resources
    placement: Placement = field(default_factory=Placement)
    least: int | None = None
    """Of an elastic one: with so many learners it can start already; None: with all."""
    project: str = ""
    ready: bool = True
    """False: its image is still being made, so it can't start whatever room there is."""

    @property
    def smallest(self) -> Request:
        """With as few learners as will do: what it waits for."""
        return self if self.least is None else replace(self, learners=self.least, least=None)


@dataclass(frozen=True)
class Running:
    """An open attempt."""

    learners: int
    each: Resources
    nodes: Sequence[str] = ()
    """Where its learners were seen; may be outdated."""
    meant: Sequence[str] = ()
    """Of learners that were not seen yet: where admission had placed them. The engine may do otherwise."""
    placement: Placement = field(default_factory=Placement)


@dataclass
class Plan:
    """The decision about a whole queue."""

    places: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Jobs that start now, in order, with a node for each learner."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Jobs that wait, in order, and why."""
    impossible: dict[str, str] = field(default_factory=dict)
    """Jobs that would not fit if the engine were empty, and why."""
    unready: list[str] = field(default_factory=list)
    """Jobs whose image is still being made: they keep no room from others."""
    held_back: dict[str, str] = field(default_factory=dict)
    """Those of ``waiting`` that the quota of their project (the value) holds back, whatever room there is."""


def more(capacity: Capacity, running: Sequence[Running], request: Request) -> tuple[str, ...]:
    """Nodes for as many of ``request``'s learners as fit now beside what runs, perhaps for none."""
    rooms = [_Room.of(node) for node in capacity.nodes if not node.potential]
    _occupy(rooms, running)
    fit = min(request.learners, sum(room.slots(request) for room in rooms))
    return _place(rooms, replace(request, learners=fit)) if fit else ()


@dataclass
class _Room:
    """A node and what is free on it."""

    node: Node
    cpus: float
    gpus: int
    memory: int
    extra: dict[str, float]

    @staticmethod
    def of(node: Node) -> _Room:
        """A node with nothing of ours on it."""
        busy, extra = node.busy, {name: there - node.busy.extra.get(name, 0) for name, there in node.extra.items()}
        return _Room(node, node.cpus - busy.cpus, node.gpus - busy.gpus, node.memory - busy.memory, extra)

    def slots(self, request: Request, empty: bool = False) -> int:
        """How many learners of this kind fit (if the node were empty, and ready)."""
        each = request.each
        if not (empty or self.node.ready) or not _allows(self.node, request):
            return 0
        have: Node | _Room = self.node if empty else self
        pairs = [(have.cpus, each.cpus), (have.gpus, each.gpus), (have.memory, each.memory)]
        pairs += [(have.extra.get(name, 0), asked) for name, asked in each.extra.items()]
        return max(0, min((int(free / asked + _SLACK) for free, asked in pairs if asked > 0), default=1 << 30))

    def give(self, each: Resources, learners: int = 1) -> None:
        self.cpus -= each.cpus * learners
        self.gpus -= each.gpus * learners
        self.memory -= each.memory * learners
        for name, asked in each.extra.items():
            self.extra[name] = self.extra.get(name, 0) - asked * learners

    def copy(self) -> _Room:
        return replace(self, extra=dict(self.extra))


def _allows(node: Node, request: Request) -> bool:
    """Whether learners may run on a node at all, whatever its size."""
    each, placement = request.each, request.placement
    if each.gpus and each.gpu_type and not (node.gpus and gpu_type_fits(each.gpu_type, node.gpu_type)):
        return False
    if not placement.node_selector.items() <= node.labels.items():
        return False
    return all(taint.tolerated(placement.tolerations) for taint in node.taints)


def plan(
    engine: str,
    capacity: Capacity,
    running: Sequence[Running],
    queue: Sequence[Request],
    allowances: Mapping[str, Allowance] | None = None,
) -> Plan:
    """Decide for every job of the queue (which is in order) whether it starts now, and if not, why.

    ``allowances``, by project, of those that have a quota, are used up; a job that its quota holds back blocks no
    other project's.
    """
    decided = Plan()
    allowed = allowances or {}
    if capacity.queue:  # somebody else admits, and has the reasons; but for quotas
        for request in queue:
            if within := _within(allowed, request, decided):
                decided.places[within.job_id] = ("",) * within.learners
                _take(allowed, within, within.learners)
        return decided
    rooms = [_Room.of(node) for node in capacity.nodes]
    _occupy(rooms, running)
    reserved, ahead = False, 0
    free = rooms
    for asked in queue:
        request = asked.smallest
        if why := _impossible(engine, capacity, rooms, request):
            (decided.waiting if capacity.grows else decided.impossible)[request.job_id] = why
        elif not request.ready:
            decided.unready.append(request.job_id)
        elif (within := _within(allowed, asked, decided)) is None:
            continue
        elif place := _place(rooms, _sized(rooms, within)):
            decided.places[request.job_id] = place
            _take(allowed, within, len(place))
            if reserved:  # `free` has no reservation in it, and is kept for the reasons only
                _place(free, replace(request, learners=len(place)))
        else:
            decided.waiting[request.job_id] = _reason(free, request, ahead)
            ahead += 1
            if not reserved:
                reserved = True
                free = [room.copy() for room in rooms]
                _reserve(rooms, request)
    return decided


def _within(allowed: Mapping[str, Allowance], asked: Request, decided: Plan) -> Request | None:
    """A request with no more learners than its project's quota allows; None when even the smallest has to wait."""
    allowance = allowed.get(asked.project)
    if allowance is None:
        return asked
    least = asked.smallest.learners
    number = allowance.learners(asked.each, asked.learners)
    if number >= least:
        return replace(asked, learners=number) if asked.least is not None else asked
    decided.waiting[asked.job_id] = allowance.hold_back(asked.each, least)
    decided.held_back[asked.job_id] = asked.project
    return None


def _take(allowed: Mapping[str, Allowance], request: Request, learners: int) -> None:
    if allowance := allowed.get(request.project):
        allowance.take(request.each, learners)


def _occupy(rooms: list[_Room], running: Sequence[Running]) -> None:
    """Subtract the open attempts: where they are, then where they were meant to be, then the rest where it fits, else
    from the emptiest nodes.

    What was only meant must not overfill a node: the engine has put it elsewhere, and room there would count as free.
    """
    by_name = {room.node.name: room for room in rooms}
    left = []
    for attempt in running:
        placed = [name for name in attempt.nodes if name in by_name][: attempt.learners]
        for name in placed:
            by_name[name].give(attempt.each)
        left.append(attempt.learners - len(placed))
    rest: list[Request] = []
    for attempt, number in zip(running, left, strict=True):
        request = Request("", number, attempt.each, attempt.placement)
        for name in attempt.meant[:number]:
            if (room := by_name.get(name)) and room.slots(request):
                room.give(attempt.each)
                number -= 1
        rest.append(replace(request, learners=number))
    for request in rest:
        if request.learners and not _place(rooms, request):
            _reserve(rooms, request)


def _sized(rooms: list[_Room], request: Request) -> Request:
    """An elastic job with as many learners as fit, but not with fewer than it needs."""
    if request.least is None:
        return request
    fit = sum(room.slots(request) for room in rooms)
    return replace(request, learners=max(request.least, min(request.learners, fit)))


def _place(rooms: list[_Room], request: Request) -> tuple[str, ...]:
    """Take room for the whole gang, the tightest nodes first; empty and nothing taken when it does not fit."""
    slots = [(room.slots(request), room) for room in rooms]
    if sum(number for number, _ in slots) < request.learners:
        return ()

    def order(slot: tuple[int, _Room]) -> tuple[bool, bool, int, int]:
        # Nodes that would have to be added come last; before them, for learners without GPUs, the GPU nodes. Otherwise
        # few nodes are better than many, and among those that have enough room the fullest is best.
        number, room = slot
        spares_gpus = room.node.gpus > 0 and not request.each.gpus
        return room.node.potential, spares_gpus, -min(number, request.learners), number

    slots.sort(key=order)
    names: list[str] = []
    for number, room in slots:
        taken = min(number, request.learners - len(names))
        room.give(request.each, taken)
        names += [room.node.name] * taken
    return tuple(names)


def _reserve(rooms: list[_Room], request: Request) -> None:
    """Set aside what a gang asks for, on the nodes where most of it is free already.

    Nodes that take no learners just now come last: a gang that need not wait for them gets its room sooner elsewhere.
    """
    left = [(room, room.slots(request, empty=True)) for room in rooms]
    for _ in range(request.learners):
        able = [index for index, (_, slots) in enumerate(left) if slots > 0] or range(len(left))
        if not able:
            return
        best = max(able, key=lambda index: _ease(left[index][0], request))
        room, slots = left[best]
        room.give(request.each)
        left[best] = room, slots - 1


def _ease(room: _Room, request: Request) -> tuple[bool, bool, int, float, int]:
    """How soon a node may have room for one learner more: the greatest is the first."""
    return room.node.ready, not room.node.potential, room.gpus if request.each.gpus else 0, room.cpus, room.memory


# --- the words ---------------------------------------------------------------------------------------------------


def _impossible(engine: str, capacity: Capacity, rooms: list[_Room], request: Request) -> str:
    """Why a request would not fit if the engine were empty; '' if it would."""
    room = sum(candidate.slots(request, empty=True) for candidate in rooms)
    if room >= request.learners:
        return ""
    why = _why_impossible(engine, rooms, request, room)
    return f"does not fit: {why}; waits for nodes to join" if capacity.grows else f"can never fit: {why}"


def _why_impossible(engine: str, rooms: list[_Room], request: Request, room: int) -> str:
    each, learners = request.each, request.learners
    nodes = [candidate.node for candidate in rooms]
    if not nodes:
        return f"engine {engine} has no nodes"
    if each.gpus and each.gpu_type and not any(_has_type(node, each.gpu_type) for node in nodes):
        types = ", ".join(sorted({node.gpu_type for node in nodes if node.gpu_type and node.gpus})) or "none"
        return f"asks GPUs of type {each.gpu_type}, engine {engine} has: {types}"
    allowed = [node for node in nodes if _allows(node, request)]
    if not allowed:
        return _why_not_allowed(engine, nodes, request)
    largest = f"the largest node of engine {engine} has"
    for noun, asked, most in (
        ("GPU", each.gpus, max(node.gpus for node in allowed)),
        ("CPU", each.cpus, max(node.cpus for node in allowed)),
    ):
        if asked > most + _SLACK:
            return f"asks {count(asked, noun)} a learner, {largest} {most:g}"
    if each.memory > (most := max(node.memory for node in allowed)):
        return f"asks {size(each.memory)} of memory a learner, {largest} {size(most)}"
    for name, asked in each.extra.items():
        if asked > (there := max(node.extra.get(name, 0) for node in allowed)) + _SLACK:
            return f"asks {asked:g} of {name} a learner, {largest} {there:g}"
    wanted = f"asks {count(learners, 'learner')} of {_words(each)} each"
    return f"{wanted}, engine {engine} has room for {room} when it is empty"


def _why_not_allowed(engine: str, nodes: Sequence[Node], request: Request) -> str:
    """Why its learners may run on no node: there are GPUs of its type, but its profile does not lead to them."""
    each, selector = request.each, request.placement.node_selector
    selected = [node for node in nodes if selector.items() <= node.labels.items()]
    if not selected:
        wanted = ", ".join(f"{name}={value}" for name, value in selector.items())
        return f"its profile asks nodes with {wanted}, engine {engine} has none"
    if each.gpus and each.gpu_type:
        selected = [node for node in selected if _has_type(node, each.gpu_type)]
        if not selected:
            return f"no node of engine {engine} that its profile allows has GPUs of type {each.gpu_type}"
    tolerations = request.placement.tolerations
    keeping = {taint for node in selected for taint in node.taints if not taint.tolerated(tolerations)}
    named = sorted(f"{taint.key}={taint.value}" if taint.value else taint.key for taint in keeping)
    return f"it does not tolerate the taints of engine {engine}'s nodes, which a profile may: {', '.join(named)}"


def _has_type(node: Node, gpu_type: str) -> bool:
    return node.gpus > 0 and gpu_type_fits(gpu_type, node.gpu_type)


def _reason(free: list[_Room], request: Request, ahead: int) -> str:
    behind = f"queued behind {count(ahead, 'job')}" if ahead else ""
    if sum(room.slots(request) for room in free) >= request.learners:
        return behind or "waiting for admission"
    return "; ".join(part for part in (_shortage(free, request), behind) if part)


def _shortage(free: list[_Room], request: Request) -> str:
    """The resource of which there is too little in sum; else, that the room is scattered."""
    each, learners = request.each, request.learners
    allowed = [room for room in free if _allows(room.node, request)]
    usable = [room for room in allowed if room.node.ready]
    if not usable:
        return f"waiting for a node: none of {len(allowed)} that it may run on is ready"
    if each.gpus:
        left, total = sum(max(0, room.gpus) for room in usable), sum(room.node.gpus for room in usable)
        if left < each.gpus * learners:
            kind = f" of type {each.gpu_type}" if each.gpu_type else ""
            return f"waiting for {count(each.gpus * learners, 'GPU')}{kind}: {left} of {total} free"
    cpus, cpus_total = sum(max(0.0, room.cpus) for room in usable), sum(room.node.cpus for room in usable)
    if cpus + _SLACK < each.cpus * learners:
        return f"waiting for {count(each.cpus * learners, 'CPU')}: {cpus:.4g} of {cpus_total:.4g} free"
    memory, memory_total = sum(max(0, room.memory) for room in usable), sum(room.node.memory for room in usable)
    if memory < each.memory * learners:
        return f"waiting for {size(each.memory * learners)} of memory: {size(memory)} of {size(memory_total)} free"
    for name, asked in each.extra.items():
        there, all_ = sum(max(0.0, room.extra.get(name, 0)) for room in usable), _sum_extra(usable, name)
        if there + _SLACK < asked * learners:
            return f"waiting for {asked * learners:g} of {name}: {there:g} of {all_:g} free"
    slots = sum(room.slots(request) for room in usable)
    return f"waiting for room for {count(learners, 'learner')} of {_words(each)} each: there is room for {slots}"


def _sum_extra(rooms: Sequence[_Room], name: str) -> float:
    return sum(room.node.extra.get(name, 0) for room in rooms)


def _words(each: Resources) -> str:
    parts = [count(each.gpus, "GPU")] if each.gpus else []
    extra = [f"{asked:g} {name}" for name, asked in each.extra.items() if asked]
    return ", ".join([*parts, count(each.cpus, "CPU"), size(each.memory), *extra])
