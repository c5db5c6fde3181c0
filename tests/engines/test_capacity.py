"""The capacity that an engine reports, and the cost of a query."""

from __future__ import annotations

import threading

import psutil
from tests.engines.bench import OTHERS, Bench, Case, Run, answer_of, until
from tests.engines.conftest import Require


def test_nodes_make_sense(bench: Bench, standing: Run) -> None:
    nodes = bench.engine().capacity().nodes
    assert nodes
    assert len({node.name for node in nodes}) == len(nodes)
    for node in nodes:
        assert node.name
        assert node.cpus > 0
        assert node.memory > 0
        assert 0 <= node.busy.cpus <= node.cpus + 0.01
        assert 0 <= node.busy.memory <= node.memory
        assert 0 <= node.busy.gpus <= node.gpus
    assert any(node.ready and not node.potential for node in nodes)


def test_what_others_take_is_busy_and_what_ours_take_is_not(bench: Bench, case: Case, require: Require) -> None:
    require("others")
    ours = case.run(resources=bench.scarce()).launch().started()
    theirs = bench.engine(OTHERS)
    until(lambda: bench.scarce_use(theirs.capacity()) == 1)
    assert answer_of(lambda: bench.scarce_use(case.engine.capacity())) == 0
    ours.stop(0)
    until(lambda: bench.scarce_use(theirs.capacity()) == 0)


def test_many_runs_cost_no_more_requests_than_one(bench: Bench, case: Case, require: Require) -> None:
    require("network")
    engine = bench.engine()

    def launch(count: int) -> None:
        names = {case.run(**bench.late()).launch().spec.run_name for _ in range(count)}
        until(lambda: names <= set(engine.observe()))

    def cost() -> int:
        with case.proxy.counted() as requests:
            engine.observe()
            engine.capacity()
        return len(requests)

    launch(1)
    first = cost()
    assert first <= 11
    launch(bench.many - 1)
    until(lambda: cost() <= first + 1)  # now and then another engine asks something of its own meanwhile


def test_an_engine_object_costs_nothing_until_it_is_asked(bench: Bench) -> None:
    threads = _threads()
    before = len(bench.proxy.requests) if bench.proxy else 0
    made = [bench.engine() for _ in range(30)]
    assert len(made) == 30
    assert _threads() <= threads
    if bench.proxy:
        assert not [request for request in bench.proxy.requests[before:] if request.changes]


def test_asking_again_and_again_keeps_nothing(bench: Bench, standing: Run) -> None:
    engine = bench.engine()

    def ask() -> tuple[int, int]:
        engine.observe()
        engine.capacity()
        standing.launch(engine)
        return len(_threads()), len(psutil.Process().children())

    first = [ask() for _ in range(3)][-1]
    assert [ask() for _ in range(10)][-1] <= first


def _threads() -> set[threading.Thread]:
    """But for those of the suite's own servers."""
    return {
        thread for thread in threading.enumerate() if thread.name != "proxy" and "process_request" not in thread.name
    }
