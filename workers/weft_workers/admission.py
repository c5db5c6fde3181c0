"""The jobs that start next on an engine: a pure function of the engine's capacity, its open attempts and its queue.

Jobs are considered in order of priority and age; those of several projects take turns (weft_workers.shares). A gang
starts whole or not at all, and its learners must really fit, node by node. The first job that does not fit keeps its
place: its request is set aside, and later jobs get only the room that is left after that. Small jobs therefore fill
gaps and never starve a large job (conservative backfill). If the first job may take the room of running jobs, these are
asked to make room (weft_workers.preemption).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft_core.engine import Capacity, Node, gpu_type_fits
from weft_core.launch import Resources
from weft_core.words import count, size
from weft_workers.preemption import Mode, victims
from weft_workers.purses import Purse
from weft_workers.quotas import Allowance
from weft_workers.rooms import Request, Room, Running, allows, occupy, place, reserve, sized
from weft_workers.shares import Share, Turns, describe

_SLACK = 1e-6  # fractions of CPUs don't add up exactly


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
    """Those of ``waiting`` that a quota or a budget of their project (the value) holds back, whatever room there is."""
    reserved: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Of ``places``, the jobs that have a budget: its id, and the GPU-seconds that they reserve of it."""
    halted: dict[str, str] = field(default_factory=dict)
    """Jobs whose budget is used up, and why they are to be halted."""
    preempted: dict[str, str] = field(default_factory=dict)
    """Running jobs that are to save and end now, and for whom: 'job-… of project …'."""
    order: list[str] = field(default_factory=list)
    """All jobs, as they were considered."""

    @property
    def places_in_queue(self) -> dict[str, int]:
        """The places of the jobs that do not start now, from 1."""
        staying = (job_id for job_id in self.order if job_id not in self.places)
        return {job_id: number for number, job_id in enumerate(staying, 1)}


def more(capacity: Capacity, running: Sequence[Running], request: Request) -> tuple[str, ...]:
    """Nodes for as many of ``request``'s learners as fit now beside what runs, perhaps for none."""
    rooms = [Room.of(node) for node in capacity.nodes if not node.potential]
    occupy(rooms, running)
    fit = min(request.learners, sum(room.slots(request) for room in rooms))
    return place(rooms, replace(request, learners=fit)) if fit else ()


def plan(
    engine: str,
    capacity: Capacity,
    running: Sequence[Running],
    queue: Sequence[Request],
    allowances: Mapping[str, Sequence[Allowance]] | None = None,
    shares: Mapping[str, Share] | None = None,
    preemption: Mode = "off",
    purses: Mapping[str, Purse] | None = None,
) -> Plan:
    """Decide for every job of a queue whether it starts now, and if not, why.

    Args:
        queue: in order of priority and age.
        allowances: by project, the rest of the limits on its jobs. They are used up. A job that they hold back blocks
            no job of another project.
        shares: by project, for fair share. They are used up, too. None: the queue is in order.
        preemption: for whom running jobs have to make room.
        purses: by id, the rest of the budgets of the jobs. They are used up.
    """
    decided = Plan()
    allowed, claims, budgets = allowances or {}, shares or {}, purses or {}
    turns = Turns(queue, claims) if shares is not None else queue
    if capacity.queue:  # another queue admits, and has the reasons, except for quotas
        for request in turns:
            decided.order.append(request.job_id)
            if (within := _within(allowed, request, decided)) and (paid := _granted(budgets, within, decided)) != 0:
                decided.places[within.job_id] = ("",) * within.learners
                _take(allowed, claims, within, within.learners)
                _reserve(budgets, within, paid, decided)
        return decided
    rooms = [Room.of(node) for node in capacity.nodes]
    held = occupy(rooms, running)
    reserved, ahead, kinds = False, _Ahead(claims), _Kinds(engine, capacity.grows, rooms)
    free = rooms
    for asked in turns:
        decided.order.append(asked.job_id)
        request = asked.smallest
        kind = kinds.of(request)
        if why := kind.impossible:
            (decided.waiting if capacity.grows else decided.impossible)[request.job_id] = why
        elif not request.ready:
            decided.unready.append(request.job_id)
        elif not (within := _within(allowed, asked, decided)) or (paid := _granted(budgets, within, decided)) == 0:
            continue
        elif not kind.full and (placed := place(rooms, sized(rooms, within))):
            decided.places[request.job_id] = placed
            _take(allowed, claims, within, len(placed))
            _reserve(budgets, within, paid, decided)
            if reserved:  # `free` has no reservation in it, and is kept for the reasons only
                place(free, replace(request, learners=len(placed)))
            kinds.taken += 1
        else:
            kind.full = True  # and stays so: during a plan, room is only taken
            if kind.taken != kinds.taken:
                kind.taken, kind.shortage = kinds.taken, _shortage(free, request)
            why = _reason(kind.shortage, ahead.words(request))
            if not reserved:
                reserved = True
                stopped = victims(rooms, held, running, request, claims, preemption)
                why += _make_room(decided, request, claims, running, stopped)
                free = [room.copy() for room in rooms]
                reserve(rooms, request)
            decided.waiting[request.job_id] = why
            ahead.add(request)
            if request.project in claims:
                claims[request.project].take(request, request.learners)
    return decided


@dataclass
class _Kind:
    """The findings of a plan about jobs that ask for the same. Often thousands of them wait."""

    impossible: str
    """Why they would not fit if the engine were empty; '' if they would."""
    full: bool = False
    """One of them did not fit."""
    shortage: str = ""
    """Why it did not; '' if there is only the room that is set aside for others."""
    taken: int = -1
    """How many jobs had got room by then."""


class _Kinds:
    """The kinds of jobs in a plan."""

    def __init__(self, engine: str, grows: bool, rooms: list[Room]) -> None:
        self._engine, self._grows, self._rooms = engine, grows, rooms
        self.taken = 0
        """How many jobs have got room."""
        self._kinds: dict[tuple[int, int, int], _Kind] = {}
        self._shapes: list[Request] = []  # they live as long as their ids are used

    def of(self, request: Request) -> _Kind:
        """The kind of a request, by its resources and placement as objects: those that are equal may be the same."""
        key = id(request.each), id(request.placement), request.learners
        if key not in self._kinds:
            self._kinds[key] = _Kind(_impossible(self._engine, self._grows, self._rooms, request))
            self._shapes.append(request)
        return self._kinds[key]


def _make_room(
    decided: Plan,
    request: Request,
    shares: Mapping[str, Share],
    running: Sequence[Running],
    stopped: Sequence[Running] | None,
) -> str:
    """Note which attempts are to end for a job. Returns the words to add to the reason why it waits."""
    if stopped is None:
        return ""
    project = f" of project {shares[request.project].project}" if request.project in shares else ""
    for attempt in stopped:
        decided.preempted[attempt.job_id] = f"{request.job_id}{project}"
    saving = len(stopped) or sum(attempt.preempted for attempt in running)
    return f"; {count(saving, 'running job')} {'is' if saving == 1 else 'are'} to save and make room" if saving else ""


def _within(allowed: Mapping[str, Sequence[Allowance]], asked: Request, decided: Plan) -> Request | None:
    """A request with no more learners than its project's limits allow; None when even the smallest has to wait."""
    least, number = asked.smallest.learners, asked.learners
    for allowance in binding(allowed, asked):
        number = min(number, allowance.learners(asked.each, asked.learners))
        if number < least:
            decided.waiting[asked.job_id] = allowance.hold_back(asked.each, least)
            decided.held_back[asked.job_id] = asked.project
            return None
    return replace(asked, learners=number) if asked.least is not None else asked


def binding(allowed: Mapping[str, Sequence[Allowance]], request: Request) -> Iterator[Allowance]:
    """The limits that bind a job."""
    return (allowance for allowance in allowed.get(request.project, ()) if allowance.user in (None, request.user))


def _take(
    allowed: Mapping[str, Sequence[Allowance]], shares: Mapping[str, Share], request: Request, learners: int
) -> None:
    for allowance in binding(allowed, request):
        allowance.take(request.each, learners)
    if share := shares.get(request.project):
        share.take(request, learners)


def _granted(purses: Mapping[str, Purse], request: Request, decided: Plan) -> float | None:
    """The GPU-seconds that a job gets of its budget; None: it needs none; 0: it has to wait, or to be halted."""
    purse = purses.get(request.budget or "")
    if purse is None or request.need is None:
        return None
    if purse.is_used_up(request.need):
        decided.halted[request.job_id] = purse.halt()
        return 0.0
    amount = purse.grant(request.need)
    if not amount:
        decided.waiting[request.job_id] = purse.hold_back(request.need)
        decided.held_back[request.job_id] = request.project
    return amount


def _reserve(purses: Mapping[str, Purse], request: Request, amount: float | None, decided: Plan) -> None:
    if amount is not None and request.budget is not None:
        purses[request.budget].take(amount)
        decided.reserved[request.job_id] = (request.budget, amount)


class _Ahead:
    """The jobs that wait for room before the one that is considered."""

    def __init__(self, shares: Mapping[str, Share]) -> None:
        self._shares = shares
        self._number = 0
        self._projects: set[str] = set()
        self._words = {project: describe(share, shares) for project, share in shares.items()}

    def add(self, request: Request) -> None:
        self._number += 1
        self._projects.add(request.project)

    def words(self, request: Request) -> str:
        if not self._number:
            return ""
        behind = f"queued behind {count(self._number, 'job')}"
        used = self._words.get(request.project, "") if self._projects - {request.project} else ""
        return f"{behind}: {used}" if used else behind


# --- the words ---------------------------------------------------------------------------------------------------


def _impossible(engine: str, grows: bool, rooms: list[Room], request: Request) -> str:
    """Why a request would not fit if the engine were empty; '' if it would."""
    room = sum(candidate.slots(request, empty=True) for candidate in rooms)
    if room >= request.learners:
        return ""
    why = _why_impossible(engine, rooms, request, room)
    return f"does not fit: {why}; waits for nodes to join" if grows else f"can never fit: {why}"


def _why_impossible(engine: str, rooms: list[Room], request: Request, room: int) -> str:
    each, learners = request.each, request.learners
    nodes = [candidate.node for candidate in rooms]
    if not nodes:
        return f"engine {engine} has no nodes"
    if each.gpus and each.gpu_type and not any(_has_type(node, each.gpu_type) for node in nodes):
        types = ", ".join(sorted({node.gpu_type for node in nodes if node.gpu_type and node.gpus})) or "none"
        return f"asks GPUs of type {each.gpu_type}, engine {engine} has: {types}"
    allowed = [node for node in nodes if allows(node, request)]
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


def _reason(shortage: str, behind: str) -> str:
    if shortage and behind:
        return f"{shortage}; {behind}"
    return shortage or behind or "waiting for admission"


def _shortage(free: list[Room], request: Request) -> str:
    """The resource of which there is too little in sum; else, that the room is scattered. '' if there is enough."""
    each, learners = request.each, request.learners
    if sum(room.slots(request) for room in free) >= learners:
        return ""
    allowed = [room for room in free if allows(room.node, request)]
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


def _sum_extra(rooms: Sequence[Room], name: str) -> float:
    return sum(room.node.extra.get(name, 0) for room in rooms)


def _words(each: Resources) -> str:
    parts = [count(each.gpus, "GPU")] if each.gpus else []
    extra = [f"{asked:g} {name}" for name, asked in each.extra.items() if asked]
    return ", ".join([*parts, count(each.cpus, "CPU"), size(each.memory), *extra])
