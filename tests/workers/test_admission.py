"""The packing of gangs onto nodes, as a pure function."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_core.engine import Amounts, Capacity, Node, Taint, gpu_type_fits
from weft_core.launch import Placement, Resources, Toleration
from weft_workers.admission import plan
from weft_workers.rooms import Request, Running

GIB = 1 << 30


def need(cpus: float = 1, gpus: int = 0, memory: int = GIB, gpu_type: str | None = None, **extra: float) -> Resources:
    return Resources(cpus=cpus, gpus=gpus, memory=memory, gpu_type=gpu_type, extra=extra)


def reasons(queue: list[Request], *nodes: Node, running: list[Running] | None = None, grows: bool = False) -> list[str]:
    """The reason why each job of the queue waits (or can never start); 'on n1' for one that starts."""
    decided = plan("e", Capacity(nodes, grows=grows), running or [], queue)
    told = {
        **decided.waiting,
        **decided.impossible,
        **{job: f"on {','.join(at)}" for job, at in decided.places.items()},
    }
    return [told[request.job_id] for request in queue]


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


# --- clusters: others' use, placement, nodes that come and go ---------------------------------------------------------


def test_what_others_use_is_not_free_and_makes_a_job_wait_rather_than_fail() -> None:
    crowded = replace(node(gpus=4), busy=Amounts(cpus=7, gpus=3, memory=60 * GIB))
    ask = [Request("a", 1, need(gpus=2))]
    assert reasons(ask, crowded) == ["waiting for 2 GPUs: 1 of 4 free"]
    assert reasons([Request("a", 1, need(gpus=1))], crowded) == ["on n1"]
    assert reasons([Request("a", 1, need(cpus=2))], crowded) == ["waiting for 2 CPUs: 1 of 8 free"]
    assert reasons([Request("a", 1, need(memory=5 * GIB))], crowded) == [
        "waiting for 5 GiB of memory: 4 GiB of 64 GiB free"
    ]
    # Others may use more than the amount that learners can have.
    assert reasons(ask, replace(crowded, busy=Amounts(gpus=9))) == ["waiting for 2 GPUs: 0 of 4 free"]
    ours = [Running(1, need(gpus=1), nodes=["n1"])]
    assert reasons([Request("a", 1, need(gpus=1))], crowded, running=ours) == ["waiting for 1 GPU: 0 of 4 free"]


TAINT = Taint("gpu", "true", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(key="gpu", value="true", effect="NoSchedule"), True),
        (Toleration(key="gpu", value="true"), True),  # no effect: every effect
        (Toleration(key="gpu", value="false"), False),
        (Toleration(key="gpu"), False),  # Equal to the empty value
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="spot", operator="Exists"), False),
        (Toleration(operator="Exists"), True),  # no key: every taint
        (Toleration(operator="Exists", effect="NoExecute"), False),
    ],
)
def test_taints_are_tolerated_as_kubernetes_scheduler_does(toleration: Toleration, tolerated: bool) -> None:
    assert TAINT.tolerated([toleration]) is tolerated
    assert TAINT.tolerated([Toleration(key="other"), toleration]) is tolerated, "one of several is enough"
    both = replace(node(), taints=[TAINT, Taint("second")])
    more = Placement(tolerations=(toleration, Toleration(key="second", operator="Exists")))
    assert (plan("e", Capacity((both,)), [], [Request("a", 1, need(), more)]).places != {}) is tolerated
    if toleration.key:
        only = Placement(tolerations=(toleration,))
        assert plan("e", Capacity((both,)), [], [Request("a", 1, need(), only)]).places == {}, "all must be tolerated"


def test_the_empty_value_equals_the_empty_value() -> None:
    assert Taint("gpu").tolerated([Toleration(key="gpu")])
    assert not Taint("gpu").tolerated([])


def test_learners_go_only_where_the_profile_lets_them() -> None:
    plain = node("plain", gpus=0)
    labelled = replace(node("labelled", gpus=0), labels={"pool": "training", "zone": "b"})
    tainted = replace(node("tainted", gpus=0), taints=[TAINT], labels={"pool": "spot"})
    pool = Placement(node_selector={"pool": "training"})
    queue = [
        Request("a", 1, need(), pool),
        Request("b", 1, need(), Placement(node_selector={"pool": "training", "zone": "a"})),
        Request("c", 1, need(cpus=8)),
        Request("d", 1, need(cpus=8)),
        Request("e", 1, need(cpus=8), Placement({"pool": "spot"}, (Toleration(key="gpu", operator="Exists"),))),
    ]
    assert reasons(queue, plain, labelled, tainted) == [
        "on labelled",
        "can never fit: its profile asks nodes with pool=training, zone=a, engine e has none",
        "on plain",
        "waiting for 8 CPUs: 7 of 16 free",  # a's node has 7, and the tainted one is none for it
        "on tainted",
    ]


def test_why_the_profile_leads_nowhere() -> None:
    tainted = replace(node("n1"), taints=[TAINT, Taint("spot")], labels={"zone": "a"})
    other = replace(node("n2", gpu_type="v100"), labels={"zone": "b"})
    assert reasons([Request("a", 1, need())], tainted) == [
        "can never fit: it does not tolerate the taints of engine e's nodes, which a profile may: gpu=true, spot"
    ]
    tolerant = Placement(tolerations=(Toleration(key="gpu", operator="Exists"),))
    assert reasons([Request("a", 1, need(), tolerant)], tainted) == [
        "can never fit: it does not tolerate the taints of engine e's nodes, which a profile may: spot"
    ]
    zoned = Placement(node_selector={"zone": "b"})
    assert reasons([Request("a", 1, need(gpus=1, gpu_type="a100"), zoned)], tainted, other) == [
        "can never fit: no node of engine e that its profile allows has GPUs of type a100"
    ]
    # The largest node is the largest of those that it may run on.
    small = replace(node("small", cpus=2), labels={"zone": "c"})
    assert reasons([Request("a", 1, need(cpus=4), Placement({"zone": "c"}))], small, other) == [
        "can never fit: asks 4 CPUs a learner, the largest node of engine e has 2"
    ]


def test_other_resources_count_by_their_names() -> None:
    has = replace(node(), extra={"rdma": 2}, busy=Amounts(extra={"rdma": 1}))
    queue = [
        Request("a", 1, need(rdma=1)),
        Request("b", 1, need(rdma=1)),
        Request("c", 1, need(rdma=3)),
        Request("d", 1, need(fpga=1)),
        Request("e", 3, need(rdma=1)),
    ]
    assert reasons(queue, has) == [
        "on n1",
        "waiting for 1 of rdma: 0 of 2 free",
        "can never fit: asks 3 of rdma a learner, the largest node of engine e has 2",
        "can never fit: asks 1 of fpga a learner, the largest node of engine e has 0",
        "can never fit: asks 3 learners of 1 CPU, 1 GiB, 1 rdma each, engine e has room for 2 when it is empty",
    ]


def test_a_node_that_is_not_ready_counts_for_what_could_fit_and_not_for_now() -> None:
    away = replace(node("away", cpus=16), ready=False)
    queue = [Request("large", 1, need(cpus=16)), Request("small", 1, need()), Request("gang", 3, need(cpus=8))]
    assert reasons(queue, node("here"), away) == [
        "waiting for 16 CPUs: 8 of 8 free",
        "on here",  # large waits for the other node: nothing is held back for it on this one
        "waiting for 24 CPUs: 7 of 8 free; queued behind 1 job",
    ]
    assert reasons([Request("a", 1, need())], away) == ["waiting for a node: none of 1 that it may run on is ready"]
    assert reasons([Request("a", 1, need(cpus=32))], away) == [
        "can never fit: asks 32 CPUs a learner, the largest node of engine e has 16"
    ]


def test_room_is_held_back_on_a_ready_node_where_one_will_do() -> None:
    """Else a cordoned node, which is empty, would be all that the first of the queue ever gets."""
    here, cordoned = node("here", gpus=0), replace(node("cordoned", gpus=0), ready=False)
    running = [Running(1, need(cpus=4), nodes=["here"])]
    queue = [Request("large", 1, need(cpus=8)), Request("small", 1, need())]
    assert reasons(queue, here, cordoned, running=running) == ["waiting for 8 CPUs: 4 of 8 free", "queued behind 1 job"]


def test_nodes_that_are_not_there_yet_come_last() -> None:
    pool = [replace(node(f"e-0-{n}", cpus=64), potential=True) for n in range(2)]
    queue = [Request("a", 1, need(cpus=8)), Request("b", 1, need(cpus=8)), Request("c", 3, need(cpus=32))]
    assert reasons(queue, *pool, node("there")) == ["on there", "on e-0-0", "on e-0-1,e-0-1,e-0-0"]


def test_where_nodes_may_join_nothing_is_given_up_and_nobody_behind_is_blocked() -> None:
    queue = [
        Request("huge", 2, need(gpus=8)),
        Request("typed", 1, need(gpus=1, gpu_type="h100")),
        Request("a", 8, need()),
    ]
    assert reasons(queue, node(gpus=4), grows=True) == [
        "does not fit: asks 8 GPUs a learner, the largest node of engine e has 4; waits for nodes to join",
        "does not fit: asks GPUs of type h100, engine e has: a100; waits for nodes to join",
        "on n1" + ",n1" * 7,
    ]
    assert reasons([Request("a", 1, need())], grows=True) == [
        "does not fit: engine e has no nodes; waits for nodes to join"
    ]
    # Jobs that could fit keep their place here, too, and jobs that can't do not block others.
    running = [Running(1, need(gpus=1), nodes=["n1"])]
    queue = [Request("huge", 1, need(gpus=8)), Request("whole", 1, need(gpus=4)), Request("one", 1, need(gpus=1))]
    assert reasons(queue, node(gpus=4), running=running, grows=True)[1:] == [
        "waiting for 4 GPUs: 3 of 4 free",
        "queued behind 1 job",
    ]


def test_where_another_queue_admits_all_are_handed_on() -> None:
    decided = plan(
        "e", Capacity((), queue="Kueue's queue team-a"), [], [Request("a", 2, need(gpus=99)), Request("b", 1, need())]
    )
    assert decided.places == {"a": ("", ""), "b": ("",)}
    assert (decided.waiting, decided.impossible) == ({}, {})


def test_learners_are_counted_where_they_run_whatever_the_order() -> None:
    nodes = node("n1", gpus=2), node("n2", gpus=2)
    # Nothing is known of the first: it must be on the node where the second is not.
    running = [Running(2, need(gpus=1)), Running(2, need(gpus=1), nodes=["n1", "n1"])]
    assert reasons([Request("a", 1, need(gpus=1))], *nodes, running=running) == ["waiting for 1 GPU: 0 of 4 free"]
    # The profile also limits the nodes on which an attempt of unknown place may run.
    tainted = replace(node("n2", gpus=2), taints=[TAINT])
    tolerant = Placement({}, (Toleration(key="gpu", operator="Exists"),))
    unknown = [Running(2, need(gpus=1), nodes=["n1", "n1"]), Running(1, need(gpus=2), placement=tolerant)]
    assert reasons([Request("a", 1, need(gpus=1), tolerant)], node("n1", gpus=2), tainted, running=unknown) == [
        "waiting for 1 GPU: 0 of 4 free"
    ]


def test_a_learner_is_not_where_it_was_meant_to_be_if_others_fill_that_node() -> None:
    nodes = node("n1", gpus=2), node("n2", gpus=2)
    seen = [Running(2, need(gpus=1), nodes=["n1", "n2"])]
    # Admission had filled n1 and then n2; the scheduler has spread them, and has not said so of all yet.
    meant = [Running(1, need(gpus=1), meant=["n1"]), Running(1, need(gpus=1), meant=["n1"])]
    for running in (seen + meant, meant + seen):
        assert reasons([Request("a", 1, need(gpus=1))], *nodes, running=running) == ["waiting for 1 GPU: 0 of 4 free"]
    # Where there is room for it, it is counted where it was meant to be.
    assert plan("e", Capacity(nodes), meant, [Request("a", 2, need(gpus=1))]).places == {"a": ("n2", "n2")}
    gang = [Running(3, need(gpus=1), nodes=["n2"], meant=["n2", "n2"])]
    assert plan("e", Capacity(nodes), gang, [Request("a", 1, need(gpus=1))]).places == {"a": ("n1",)}


@pytest.mark.parametrize(
    ("asked", "there", "fits"),
    [
        ("v100", "Tesla-V100-SXM2-16GB", True),
        ("Tesla V100", "Tesla-V100-SXM2-16GB", True),
        ("rtx4090", "NVIDIA GeForce RTX 4090", True),
        ("a100", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", True),
        ("a10", "NVIDIA-A100-SXM4-80GB", False),
        ("a10", "NVIDIA-A10", True),
        ("l4", "NVIDIA-L40S", False),
        ("v100", None, True),
    ],
)
def test_types_of_gpus(asked: str, there: str | None, fits: bool) -> None:
    assert gpu_type_fits(asked, there) is fits


sizes = st.builds(need, st.integers(1, 4), st.integers(0, 3), st.integers(1, 4).map(lambda n: n * GIB))
requests = st.lists(st.tuples(st.integers(1, 4), sizes), max_size=8).map(
    lambda many: [Request(f"j{i}", learners, each) for i, (learners, each) in enumerate(many)]
)
capacities = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 4), st.integers(1, 8)), min_size=1, max_size=4).map(
    lambda many: Capacity(tuple(node(f"n{i}", c, g, m * GIB) for i, (c, g, m) in enumerate(many)))
)
"""Capacities of one machine, or of several that are all present."""
clusters = st.tuples(
    capacities,
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.booleans(), st.booleans()), min_size=4, max_size=4),
).map(
    lambda drawn: Capacity(
        tuple(
            replace(node, busy=Amounts(cpus, gpus), ready=ready, potential=potential)
            for node, (cpus, gpus, ready, potential) in zip(drawn[0].nodes, drawn[2], strict=False)
        ),
        grows=drawn[1],
    )
)
"""Capacities of clusters that others use, too, and whose nodes come and go."""


@given(capacities | clusters, requests)
def test_no_node_is_ever_given_more_than_it_has_and_everybody_gets_an_answer(
    capacity: Capacity, queue: list[Request]
) -> None:
    decided = plan("e", capacity, [], queue)
    answers = [*decided.places, *decided.waiting, *decided.impossible]
    assert sorted(answers) == sorted(request.job_id for request in queue)
    assert all([*decided.waiting.values(), *decided.impossible.values()])
    for node in capacity.nodes:
        here = [
            request.each for request in queue for name in decided.places.get(request.job_id, ()) if name == node.name
        ]
        assert sum(each.cpus for each in here) <= max(0, node.cpus - node.busy.cpus)
        assert sum(each.gpus for each in here) <= max(0, node.gpus - node.busy.gpus)
        assert sum(each.memory for each in here) <= node.memory
        assert node.ready or not here
    assert not (capacity.grows and decided.impossible)
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
    place = [request.job_id for request in queue].index(first)
    before = [
        Running(request.learners, request.each, decided.places[request.job_id])
        for request in queue[:place]
        if request.job_id in decided.places
    ]
    assert plan("e", capacity, before, [queue[place]]).places == {}
    # When those before it end, it starts, even though the later ones that were let in still run.
    later = [
        Running(request.learners, request.each, decided.places[request.job_id])
        for request in queue[place:]
        if request.job_id in decided.places
    ]
    if len(capacity.nodes) == 1:
        assert plan("e", capacity, later, [queue[place]]).places != {}
