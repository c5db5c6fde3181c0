"""Nodes with what is free on them, and how gangs are placed there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from weft_core.engine import Node, gpu_type_fits
from weft_core.launch import Placement, Resources
from weft_core.store.budgets import Need

_SLACK = 1e-6  # fractions of CPUs don't add up exactly


@dataclass(frozen=True)
class Request:
    """A queued job."""

    job_id: str
    learners: int
    each: Resources
    placement: Placement = field(default_factory=Placement)
    least: int | None = None
    """Of an elastic job: the number of learners with which it can start; None: all of them."""
    project: str = ""
    user: str = ""
    priority: int = 50
    budget: str | None = None
    """The id of the budget to which it is charged."""
    need: Need | None = None
    """What it reserves of that budget; None: nothing."""
    ready: bool = True
    """False: its image is still being made, so it can't start whatever room there is."""

    @property
    def smallest(self) -> Request:
        """The request with as few learners as will do, for which it waits."""
        return self if self.least is None else replace(self, learners=self.least, least=None)


@dataclass(frozen=True)
class Running:
    """An open attempt."""

    learners: int
    each: Resources
    nodes: Sequence[str] = ()
    """Where its learners were seen; may be outdated."""
    meant: Sequence[str] = ()
    """For learners that were not seen yet: where admission had placed them. The engine may place them elsewhere."""
    placement: Placement = field(default_factory=Placement)
    job_id: str = ""
    project: str = ""
    priority: int = 50
    unsaved: float = 0.0
    """The work that is lost if it stops without saving: CPU-seconds since its last stored checkpoint, with GPUs
    converted."""
    ending: bool = False
    """It is to end already, so its room comes free by itself."""
    preempted: bool = False
    """It is ending because a job needs its room."""


@dataclass
class Room:
    """A node and what is free on it."""

    node: Node
    cpus: float
    gpus: int
    memory: int
    extra: dict[str, float]

    @staticmethod
    def of(node: Node) -> Room:
        """A node with nothing of ours on it."""
        busy, extra = node.busy, {name: there - node.busy.extra.get(name, 0) for name, there in node.extra.items()}
        return Room(node, node.cpus - busy.cpus, node.gpus - busy.gpus, node.memory - busy.memory, extra)

    def slots(self, request: Request, empty: bool = False) -> int:
        """How many learners of this kind fit (if the node were empty, and ready)."""
        each = request.each
        if not (empty or self.node.ready) or not allows(self.node, request):
            return 0
        have: Node | Room = self.node if empty else self
        pairs = [(have.cpus, each.cpus), (have.gpus, each.gpus), (have.memory, each.memory)]
        pairs += [(have.extra.get(name, 0), asked) for name, asked in each.extra.items()]
        return max(0, min((int(free / asked + _SLACK) for free, asked in pairs if asked > 0), default=1 << 30))

    def give(self, each: Resources, learners: int = 1) -> None:
        self.cpus -= each.cpus * learners
        self.gpus -= each.gpus * learners
        self.memory -= each.memory * learners
        for name, asked in each.extra.items():
            self.extra[name] = self.extra.get(name, 0) - asked * learners

    def copy(self) -> Room:
        return replace(self, extra=dict(self.extra))


def allows(node: Node, request: Request) -> bool:
    """Whether learners may run on a node at all, whatever its size."""
    each, placement = request.each, request.placement
    if each.gpus and each.gpu_type and not (node.gpus and gpu_type_fits(each.gpu_type, node.gpu_type)):
        return False
    if not placement.node_selector.items() <= node.labels.items():
        return False
    return all(taint.tolerated(placement.tolerations) for taint in node.taints)


def occupy(rooms: list[Room], running: Sequence[Running]) -> list[list[str]]:
    """Subtract the open attempts: where they are, then where they were meant to be, then the rest where it fits, else
    from the emptiest nodes. Returns the nodes that each was subtracted from, once for each learner.

    A planned place must not overfill a node: then the engine has put the learner elsewhere, where room would count as
    free.
    """
    by_name = {room.node.name: room for room in rooms}
    held: list[list[str]] = []
    for attempt in running:
        placed = [name for name in attempt.nodes if name in by_name][: attempt.learners]
        for name in placed:
            by_name[name].give(attempt.each)
        held.append(placed)
    rest: list[Request] = []
    for attempt, names in zip(running, held, strict=True):
        number = attempt.learners - len(names)
        request = Request("", number, attempt.each, attempt.placement)
        for name in attempt.meant[:number]:
            if (room := by_name.get(name)) and room.slots(request):
                room.give(attempt.each)
                names.append(name)
        rest.append(replace(request, learners=attempt.learners - len(names)))
    for request, names in zip(rest, held, strict=True):
        if request.learners:
            names += place(rooms, request) or reserve(rooms, request)
    return held


def sized(rooms: list[Room], request: Request) -> Request:
    """An elastic job with as many learners as fit, but not with fewer than it needs."""
    if request.least is None:
        return request
    fit = sum(room.slots(request) for room in rooms)
    return replace(request, learners=max(request.least, min(request.learners, fit)))


def place(rooms: list[Room], request: Request) -> tuple[str, ...]:
    """Take room for the whole gang, the tightest nodes first; empty and nothing taken when it does not fit."""
    slots = [(room.slots(request), room) for room in rooms]
    if sum(number for number, _ in slots) < request.learners:
        return ()

    def order(slot: tuple[int, Room]) -> tuple[bool, bool, int, int]:
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


def reserve(rooms: list[Room], request: Request) -> tuple[str, ...]:
    """Set aside what a gang asks for, on the nodes where most of it is free already. Returns a node for each learner.

    Nodes that take no learners just now come last: a gang that need not wait for them gets its room sooner elsewhere.
    """
    left = [(room, room.slots(request, empty=True)) for room in rooms]
    names: list[str] = []
    for _ in range(request.learners):
        able = [index for index, (_, slots) in enumerate(left) if slots > 0] or range(len(left))
        if not able:
            break
        best = max(able, key=lambda index: _ease(left[index][0], request))
        room, slots = left[best]
        room.give(request.each)
        left[best] = room, slots - 1
        names.append(room.node.name)
    return tuple(names)


def _ease(room: Room, request: Request) -> tuple[bool, bool, int, float, int]:
    """How soon a node may have room for one learner more: the greatest is the first."""
    return room.node.ready, not room.node.potential, room.gpus if request.each.gpus else 0, room.cpus, room.memory
