"""Fair share and preemption as pure functions: whose turn it is, which jobs have to make room, and that no job
starves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workers.test_admission import GIB, need, node

from weft_core.engine import Capacity
from weft_core.store.quotas import Quota, Usage
from weft_workers.admission import Plan, plan
from weft_workers.preemption import Mode, victims
from weft_workers.quotas import Allowance
from weft_workers.rooms import Request, Room, Running, occupy
from weft_workers.shares import Share, Turns, describe


def request(name: str, project: str, gpus: int = 1, learners: int = 1, priority: int = 50) -> Request:
    return Request(name, learners, need(cpus=1, gpus=gpus), project=project, priority=priority)


def running(
    name: str, project: str, gpus: int = 1, unsaved: float = 0, priority: int = 50, ending: bool = False, at: str = "n1"
) -> Running:
    return Running(
        1, need(cpus=1, gpus=gpus), (at,), job_id=name, project=project, unsaved=unsaved, priority=priority,
        ending=ending, preempted=ending,
    )  # fmt: skip


def share(project: str, gpus: int | None = None, weight: float = 1, average: float = 0, held: int = 0) -> Share:
    """Of a project that holds ``held`` GPUs, with a guarantee of ``gpus``."""
    used = Usage().plus(need(cpus=1, gpus=1), held, held)
    return Share(project, weight, average, used, Quota(gpus=gpus))


def turns(queue: list[Request], *shares: Share) -> list[str]:
    """The order in which jobs are considered, if each gets what it asks for."""
    known = {share.project: share for share in shares}
    found = []
    for queued in Turns(queue, known):
        found.append(queued.job_id)
        known[queued.project].take(queued, queued.learners)
    return found


# --- whose turn it is -----------------------------------------------------------------------------------------------


def test_projects_take_turns_however_many_jobs_they_have() -> None:
    queue = [request(f"a{n}", "a", priority=90) for n in range(3)] + [request("b1", "b"), request("b2", "b")]
    assert turns(queue, share("a"), share("b")) == ["a0", "b1", "a1", "b2", "a2"]


def test_who_has_used_less_for_its_weight_comes_first() -> None:
    queue = [request("a1", "a"), request("a2", "a"), request("b1", "b"), request("b2", "b")]
    assert turns(queue, share("a", average=40), share("b")) == ["b1", "b2", "a1", "a2"]
    assert turns(queue, share("a", average=40, weight=100), share("b")) == ["b1", "a1", "a2", "b2"]
    assert turns(queue, share("a", held=2), share("b")) == ["b1", "b2", "a1", "a2"], "what it holds now counts, too"


def test_jobs_within_a_guarantee_come_before_all_others() -> None:
    queue = [request("a1", "a"), request("b1", "b"), request("b2", "b")]
    assert turns(queue, share("a"), share("b", gpus=1, average=500)) == ["b1", "a1", "b2"]


def test_a_job_without_what_is_guaranteed_is_not_within_the_guarantee() -> None:
    assert not share("a", gpus=4).covers(request("a1", "a", gpus=0))
    assert share("a", gpus=4).covers(request("a1", "a", gpus=4))
    assert not share("a", gpus=4, held=1).covers(request("a1", "a", gpus=4))
    assert not share("a").covers(request("a1", "a"))


def test_the_words_for_what_a_project_has_used() -> None:
    shares = {"a": share("a", average=30, weight=1), "b": share("b", average=10, weight=3)}
    assert describe(shares["a"], shares) == "project a has used 75% of late, its share is 25%"
    assert describe(share("a"), {"a": share("a"), "b": share("b")}) == "", "nothing was used"


def test_a_job_behind_other_projects_jobs_says_why() -> None:
    busy = [running("x", "b", gpus=4)]
    queue = [request("a1", "a"), request("a2", "a"), request("b1", "b")]
    shares = {"a": share("a", average=30), "b": share("b", average=10)}
    decided = plan("e", Capacity((node(),)), busy, queue, shares=shares)
    assert decided.order == ["b1", "a1", "a2"]
    assert decided.waiting == {
        "b1": "waiting for 1 GPU: 0 of 4 free",
        "a1": "waiting for 1 GPU: 0 of 4 free; queued behind 1 job: project a has used 75% of late, its share is 50%",
        "a2": "waiting for 1 GPU: 0 of 4 free; queued behind 2 jobs: project a has used 75% of late, its share is 50%",
    }
    assert decided.places_in_queue == {"b1": 1, "a1": 2, "a2": 3}


def test_a_cap_on_one_member_holds_back_nobody_else() -> None:
    cap = Allowance("a", Quota(gpus=1), Usage(gpus=1, jobs=1), limit="cap on ada (editor) in project a", user="ada")
    mine, hers = request("mine", "a"), request("hers", "a")
    queue = [replace(mine, user="ada"), replace(hers, user="grace")]
    decided = plan("e", Capacity((node(),)), [], queue, {"a": [Allowance("a", Quota(gpus=2)), cap]})
    assert decided.waiting == {"mine": "waiting for cap on ada (editor) in project a: 1 of 1 GPUs in use"}
    assert decided.places == {"hers": ("n1",)}


# --- who has to make room -------------------------------------------------------------------------------------------


def preempted(asked: Request, busy: Sequence[Running], *shares: Share, mode: Mode = "guaranteed") -> list[str] | None:
    rooms = [Room.of(node())]
    found = victims(rooms, occupy(rooms, busy), busy, asked, {share.project: share for share in shares}, mode)
    return None if found is None else [attempt.job_id for attempt in found]


def test_a_job_within_its_guarantee_takes_back_what_others_have_borrowed() -> None:
    busy = [running("old", "b", 2, unsaved=900), running("new", "b", 2, unsaved=5)]
    shares = share("a", gpus=2), share("b", gpus=2, held=4)
    assert preempted(request("a1", "a", 2), busy, *shares) == ["new"], "the least unsaved work"
    assert preempted(request("a1", "a", 3), busy, *shares) is None, "it is beyond the guarantee itself"
    assert preempted(request("a1", "a", 2), busy, *shares, mode="off") is None
    within = share("a", gpus=2), share("b", gpus=4, held=4)
    assert preempted(request("a1", "a", 2), busy, *within) is None, "nobody has borrowed anything"


def test_no_more_is_taken_back_than_was_borrowed_or_is_needed() -> None:
    busy = [running(f"b{n}", "b", 1, unsaved=n) for n in range(4)]
    assert preempted(request("a1", "a", 2), busy, share("a", gpus=4), share("b", gpus=3, held=4)) is None
    assert preempted(request("a1", "a", 1), busy, share("a", gpus=4), share("b", gpus=3, held=4)) == ["b0"]
    small = [running("small", "b", 1, unsaved=1), running("large", "b", 3, unsaved=2)]
    assert preempted(request("a1", "a", 3), small, share("a", gpus=3), share("b", held=4)) == ["large"]


def test_whoever_is_ending_already_is_waited_for() -> None:
    busy = [running("gone", "b", 2, ending=True), running("stays", "b", 2)]
    shares = share("a", gpus=2), share("b", held=4)
    assert preempted(request("a1", "a", 2), busy, *shares) == []
    assert preempted(request("a1", "a", 2), busy, mode="off") == []


def test_priority_counts_within_a_project_only_and_only_if_the_settings_say_so() -> None:
    busy = [running("low", "a", 2, priority=10), running("same", "a", 1, priority=90), running("b1", "b", 1)]
    urgent = request("urgent", "a", 2, priority=90)
    assert preempted(urgent, busy) is None
    assert preempted(urgent, busy, mode="priority") == ["low"]
    assert preempted(replace(urgent, priority=10), busy, mode="priority") is None
    assert preempted(replace(urgent, project="b"), busy, mode="priority") is None


def test_the_plan_names_who_is_to_make_room_and_says_so() -> None:
    busy = [running("b1", "b", 4)]
    shares = {"a": share("a", gpus=4), "b": share("b", held=4)}
    decided = plan(
        "e", Capacity((node(),)), busy, [request("a1", "a", 2), request("b2", "b")], shares=shares,
        preemption="guaranteed",
    )  # fmt: skip
    assert decided.preempted == {"b1": "a1 of project a"}
    assert decided.waiting["a1"] == "waiting for 2 GPUs: 0 of 4 free; 1 running job is to save and make room"
    again = plan(
        "e", Capacity((node(),)), [replace(busy[0], ending=True, preempted=True)], [request("a1", "a", 2)],
        shares={"a": share("a", gpus=4), "b": share("b", held=4)}, preemption="guaranteed",
    )  # fmt: skip
    assert again.preempted == {}, "nobody else is asked while that one saves"
    assert again.waiting == decided.waiting.__class__(a1=decided.waiting["a1"])


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 99), st.integers(0, 9)), max_size=8),
    st.tuples(st.sampled_from("abc"), st.integers(1, 6), st.integers(0, 99)),
    st.fixed_dictionaries({project: st.none() | st.integers(0, 6) for project in "abc"}),
    st.sampled_from(["off", "guaranteed", "priority"]),
)
def test_only_borrowed_or_lower_priority_room_is_taken_and_no_gang_in_vain(
    busy: list[tuple[str, int, int, int]],
    asked: tuple[str, int, int],
    guarantees: dict[str, int | None],
    mode: Mode,
) -> None:
    attempts: list[Running] = []
    room = 8
    for project, gpus, priority, unsaved in busy:
        if gpus <= room:
            attempts.append(running(f"j{len(attempts)}", project, gpus, unsaved, priority))
            room -= gpus
    project, gpus, priority = asked
    want = request("want", project, gpus, priority=priority)
    held = {name: Usage() for name in "abc"}
    for attempt in attempts:
        held[attempt.project] = held[attempt.project].plus(attempt.each, 1)
    shares = {name: Share(name, used=held[name], guaranteed=Quota(gpus=guarantees[name])) for name in "abc"}
    rooms = [Room.of(node(cpus=64, gpus=8))]
    chosen = victims(rooms, occupy(rooms, attempts), attempts, want, shares, mode)
    if gpus <= room:
        assert chosen == []
        return
    if not chosen:
        assert chosen is None
        return
    freed = sum(attempt.each.gpus for attempt in chosen)
    assert room + freed >= gpus, "it fits afterwards"
    assert all(room + freed - attempt.each.gpus < gpus for attempt in chosen), "and nobody stops in vain"
    for attempt in chosen:
        if attempt.project == project:
            assert mode == "priority"
            assert attempt.priority < priority
        else:
            assert mode != "off"
            assert shares[project].covers(want)
            own = guarantees[attempt.project]
            assert own is None or held[attempt.project].gpus > own, "its project holds more than its guarantee"


# --- nobody starves, and nothing is given out twice -----------------------------------------------------------------


@dataclass
class Simulated:
    """An engine with one node of 8 GPUs over many plans. Time passes in ticks; a job has so many ticks of work. A
    preempted job takes a tick to save, and keeps its work."""

    guarantees: dict[str, int]
    quotas: dict[str, int]
    mode: Mode = "guaranteed"
    half_life: float = 20.0
    queue: dict[str, tuple[Request, int]] = field(default_factory=dict)
    active: dict[str, tuple[Request, int, bool]] = field(default_factory=dict)
    averages: dict[str, float] = field(default_factory=lambda: dict.fromkeys("abc", 0.0))
    started: set[str] = field(default_factory=set)
    preemptions: int = 0

    def submit(self, request: Request, work: int) -> None:
        self.queue[request.job_id] = request, work

    def tick(self) -> Plan:
        attempts = [
            replace(
                running(job, request.project, request.each.gpus, priority=request.priority, ending=ending), unsaved=work
            )
            for job, (request, work, ending) in self.active.items()
        ]
        held = {name: Usage() for name in "abc"}
        for attempt in attempts:
            held[attempt.project] = held[attempt.project].plus(attempt.each, 1)
        shares = {
            name: Share(name, 1.0, self.averages[name], held[name], Quota(gpus=self.guarantees.get(name)))
            for name in "abc"
        }
        limits = {name: [Allowance(name, Quota(gpus=most), held[name])] for name, most in self.quotas.items()}
        waiting = [request for request, _ in self.queue.values()]
        decided = plan("e", Capacity((node(cpus=99, gpus=8),)), attempts, waiting, limits, shares, self.mode)
        assert sorted(decided.order) == sorted(self.queue)
        assert not decided.places.keys() & decided.waiting.keys()
        assert decided.preempted.keys() <= {job for job, (_, _, ending) in self.active.items() if not ending}
        for job, (request, work, ending) in list(self.active.items()):
            work -= 1
            if ending or work <= 0:
                del self.active[job]
                if work > 0:
                    self.queue[job] = request, work
            else:
                self.active[job] = request, work, job in decided.preempted
        self.preemptions += len(decided.preempted)
        for job in decided.places:
            request, work = self.queue.pop(job)
            self.active[job] = request, work, False
            self.started.add(job)
        gpus = {
            name: sum(request.each.gpus for request, _, _ in self.active.values() if request.project == name)
            for name in "abc"
        }
        assert sum(gpus.values()) <= 8, "never more than there is"
        assert all(gpus[name] <= most for name, most in self.quotas.items()), "never over quota"
        decay = 0.5 ** (1 / self.half_life)
        for name in "abc":
            self.averages[name] = self.averages[name] * decay + (1 - decay) * 17 * gpus[name]
        return decided


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 8), st.integers(1, 6), st.integers(0, 99)), max_size=14),
    st.fixed_dictionaries({}, optional={name: st.integers(0, 4) for name in "abc"}),
    st.fixed_dictionaries({}, optional={name: st.integers(1, 8) for name in "abc"}),
    st.sampled_from(["off", "guaranteed", "priority"]),
)
def test_every_job_that_can_start_is_completed(
    jobs: list[tuple[str, int, int, int]], guarantees: dict[str, int], quotas: dict[str, int], mode: Mode
) -> None:
    world = Simulated(guarantees, quotas, mode)
    for number, (project, gpus, work, priority) in enumerate(jobs):
        if gpus <= quotas.get(project, 8):
            world.submit(request(f"j{number}", project, gpus, priority=priority), work)
        if number % 3 == 0:
            world.tick()
    for _ in range(40 * len(jobs) + 10):
        if not world.queue and not world.active:
            break
        world.tick()
    assert not world.queue
    assert not world.active
    assert world.preemptions <= 10 * len(jobs), "jobs do not push each other out for ever"


@pytest.mark.parametrize("large", range(1, 9))
@pytest.mark.parametrize("priority", [0, 50])
def test_a_large_job_starts_however_many_small_jobs_another_project_sends(large: int, priority: int) -> None:
    world = Simulated({}, {})
    world.averages["a"] = 60.0  # a has used a lot
    world.submit(request("large", "a", large, priority=priority), 5)
    for tick in range(400):
        for n in range(3):
            world.submit(request(f"b{tick}-{n}", "b", 1 + n % 2, priority=100), 3)
        world.tick()
        if "large" in world.started:
            return
    raise AssertionError("it starves")


def test_two_projects_that_always_want_more_get_what_their_weights_say() -> None:
    used = {"a": 0, "b": 0}
    shares = {"a": 3.0, "b": 1.0}
    averages = {"a": 0.0, "b": 0.0}
    active: list[tuple[Request, int]] = []
    for tick in range(400):
        active = [(request, left - 1) for request, left in active if left > 1]
        queue = [request(f"{name}{tick}-{n}", name) for name in "ab" for n in range(8)]
        attempts = [running(request.job_id, request.project) for request, _ in active]
        held = {name: Usage() for name in "ab"}
        for attempt in attempts:
            held[attempt.project] = held[attempt.project].plus(attempt.each, 1)
        known = {name: Share(name, shares[name], averages[name], held[name]) for name in "ab"}
        decided = plan("e", Capacity((node(cpus=99, gpus=8),)), attempts, queue, shares=known)
        active += [(request, 1 + len(request.job_id) % 4) for request in queue if request.job_id in decided.places]
        for name in "ab":
            now = sum(request.project == name for request, _ in active)
            used[name] += now
            averages[name] = averages[name] * 0.97 + 0.03 * 17 * now
    assert 2.6 < used["a"] / used["b"] < 3.4


def test_memory_counts_in_a_guarantee() -> None:
    tenant = Share("a", guaranteed=Quota(memory=2 * GIB), used=Usage(memory=GIB))
    assert tenant.covers(Request("x", 1, need(memory=GIB)))
    assert not tenant.covers(Request("x", 2, need(memory=GIB)))
