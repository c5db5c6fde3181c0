"""The packing of gangs onto nodes, as a pure function."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft_core.engine import Capacity, Node
from weft_core.launch import Resources
from weft_workers.admission import Request, Running, plan

GIB = 1 << 30


def need(cpus: float = 1, gpus: int = 0, memory: int = GIB, gpu_type: str | None = None) -> Resources:
    return Resources(cpus=cpus, gpus=gpus, memory=memory, gpu_type=gpu_type)


def node(name: str = "n1", cpus: float = 8, gpus: int = 4, memory: int = 64 * GIB, gpu_type: str = "a100") -> Node:
    return Node(name, cpus, gpus, memory, gpu_type if gpus else None)


def test_all_that_fit_start_and_each_learner_has_a_node() -> None:
    decided = plan("e", Capacity((node(),)), [], [Request("a", 2, need(gpus=1)), Request("b", 1, need(gpus=2))])
    assert decided.places == {"a": ("n1", "n1"), "b": ("n1",)}


def test_the_reason_says_what_is_asked_and_what_is_free() -> None:
    busy = [Running(3, need(gpus=1))]
    decided = plan("e", Capacity((node(),)), busy, [Request("a", 2, need(gpus=1))])
    assert decided.waiting == {"a": "waiting for 2 GPUs: 1 of 4 free"}
    decided = plan("e", Capacity((node(),)), [Running(1, need(cpus=7.5))], [Request("a", 1, need(cpus=2))])
    assert decided.waiting == {"a": "waiting for 2 CPUs: 0.5 of 8 free"}
    full = [Running(1, need(memory=63 * GIB))]
    decided = plan("e", Capacity((node(),)), full, [Request("a", 1, need(memory=2 * GIB))])
    assert decided.waiting == {"a": "waiting for 2 GiB of memory: 1 GiB of 64 GiB free"}


def test_a_gang_must_fit_node_by_node_and_not_only_in_sum() -> None:
    nodes = Capacity((node("n1", gpus=2), node("n2", gpus=2)))
    busy = [Running(2, need(gpus=1), nodes=("n1", "n2"))]
    decided = plan("e", nodes, busy, [Request("a", 1, need(gpus=2))])
    assert decided.waiting == {"a": "waiting for room for 1 learner of 2 GPUs, 1 CPU, 1 GiB each: there is room for 0"}
    # Where they really are matters: both on one node leave the other free.
    packed = [Running(2, need(gpus=1), nodes=("n1", "n1"))]
    assert plan("e", nodes, packed, [Request("a", 1, need(gpus=2))]).places == {"a": ("n2",)}


def test_all_learners_or_none() -> None:
    decided = plan("e", Capacity((node(gpus=3, cpus=3),)), [Running(1, need(gpus=1))], [Request("a", 3, need(gpus=1))])
    assert decided.places == {}


def test_small_jobs_fill_gaps_but_never_what_the_first_blocked_job_waits_for() -> None:
    busy = [Running(1, need(cpus=1, gpus=2))]
    queue = [
        Request("large", 1, need(cpus=4, gpus=4)),
        Request("one-gpu", 1, need(gpus=1)),
        Request("cpu-only", 1, need(cpus=2)),
        Request("too-many-cpus", 1, need(cpus=4)),
    ]
    decided = plan("e", Capacity((node(),)), busy, queue)
    assert decided.places == {"cpu-only": ("n1",)}
    assert decided.waiting == {
        "large": "waiting for 4 GPUs: 2 of 4 free",
        "one-gpu": "queued behind 1 job",
        "too-many-cpus": "queued behind 2 jobs",
    }


def test_a_later_job_that_is_short_itself_says_both() -> None:
    busy = [Running(1, need(gpus=4))]
    queue = [Request("a", 1, need(gpus=1)), Request("b", 1, need(gpus=2))]
    assert plan("e", Capacity((node(),)), busy, queue).waiting == {
        "a": "waiting for 1 GPU: 0 of 4 free",
        "b": "waiting for 2 GPUs: 0 of 4 free; queued behind 1 job",
    }


def test_what_can_never_fit_says_why_and_blocks_nobody() -> None:
    capacity = Capacity((node("n1", cpus=2, gpus=1), node("n2", cpus=2, gpus=0)))
    queue = [
        Request("cpus", 1, need(cpus=8)),
        Request("gpus", 1, need(gpus=2)),
        Request("type", 1, need(gpus=1, gpu_type="v100")),
        Request("memory", 1, need(memory=65 * GIB)),
        Request("learners", 2, need(gpus=1)),
        Request("fine", 1, need(gpus=1, gpu_type="A100")),
    ]
    decided = plan("local", capacity, [], queue)
    assert decided.impossible == {
        "cpus": "can never fit: asks 8 CPUs a learner, the largest node of engine local has 2",
        "gpus": "can never fit: asks 2 GPUs a learner, the largest node of engine local has 1",
        "type": "can never fit: asks GPUs of type v100, engine local has: a100",
        "memory": "can never fit: asks 65 GiB of memory a learner, the largest node of engine local has 64 GiB",
        "learners": "can never fit: asks 2 learners of 1 GPU, 1 CPU, 1 GiB each, "
        "engine local has room for 1 when it is empty",
    }
    assert decided.places == {"fine": ("n1",)}
    assert decided.waiting == {}


def test_learners_without_gpus_leave_gpu_nodes_free() -> None:
    capacity = Capacity((node("gpu", gpus=4), node("plain", gpus=0)))
    assert plan("e", capacity, [], [Request("a", 1, need())]).places == {"a": ("plain",)}


def test_a_node_that_left_does_not_free_what_runs_elsewhere() -> None:
    capacity = Capacity((node("n1", gpus=2),))
    busy = [Running(2, need(gpus=1), nodes=("gone", "n1"))]
    assert plan("e", capacity, busy, [Request("a", 1, need(gpus=1))]).places == {}


def test_fractions_of_cpus_add_up() -> None:
    capacity = Capacity((node(cpus=1, gpus=0),))
    busy = [Running(1, need(cpus=0.1)) for _ in range(7)]
    assert plan("e", capacity, busy, [Request("a", 3, need(cpus=0.1))]).places == {"a": ("n1",) * 3}


sizes = st.builds(need, st.integers(1, 4), st.integers(0, 3), st.integers(1, 4).map(lambda n: n * GIB))
requests = st.lists(st.tuples(st.integers(1, 4), sizes), max_size=8).map(
    lambda many: [Request(f"j{i}", learners, each) for i, (learners, each) in enumerate(many)]
)
capacities = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 4), st.integers(1, 8)), min_size=1, max_size=4).map(
    lambda many: Capacity(tuple(node(f"n{i}", c, g, m * GIB) for i, (c, g, m) in enumerate(many)))
)


@given(capacities, requests)
def test_no_node_is_ever_given_more_than_it_has_and_everybody_gets_an_answer(
    capacity: Capacity, queue: list[Request]
) -> None:
    decided = plan("e", capacity, [], queue)
    answers = [*decided.places, *decided.waiting, *decided.impossible]
    assert sorted(answers) == sorted(one.job_id for one in queue)
    assert all([*decided.waiting.values(), *decided.impossible.values()])
    for one in capacity.nodes:
        here = [
            request.each for request in queue for name in decided.places.get(request.job_id, ()) if name == one.name
        ]
        assert sum(each.cpus for each in here) <= one.cpus
        assert sum(each.gpus for each in here) <= one.gpus
        assert sum(each.memory for each in here) <= one.memory
    for request in queue:
        assert len(decided.places.get(request.job_id, ())) in (0, request.learners)


@given(capacities, requests)
def test_the_first_that_waits_could_not_have_started_and_is_not_delayed_by_later_jobs(
    capacity: Capacity, queue: list[Request]
) -> None:
    decided = plan("e", capacity, [], queue)
    if not decided.waiting:
        return
    first = next(iter(decided.waiting))
    place = [one.job_id for one in queue].index(first)
    before = [
        Running(one.learners, one.each, decided.places[one.job_id])
        for one in queue[:place]
        if one.job_id in decided.places
    ]
    assert plan("e", capacity, before, [queue[place]]).places == {}
    # When those before it end, it starts, even though the later ones that were let in still run.
    later = [
        Running(one.learners, one.each, decided.places[one.job_id])
        for one in queue[place:]
        if one.job_id in decided.places
    ]
    if len(capacity.nodes) == 1:
        assert plan("e", capacity, later, [queue[place]]).places != {}
