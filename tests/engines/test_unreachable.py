"""Unknown is not dead: an engine that can't reach its server says so in time, and does no harm."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import chain

import pytest
from tests.engines.bench import Bench, Case, Run, answer_of, stays, until
from tests.engines.conftest import Require
from tests.engines.proxy import Trap, Way

from weft_core.engine import Engine, EngineUnreachable, LearnerState, Observation

_TIMEOUT = 2.0
_LIMIT = 3 * _TIMEOUT + 30
_BOTH = {0: 1, 1: 1}


def _questions(standing: Run, new: Run) -> dict[str, Callable[[Engine], object]]:
    return {
        "observe": lambda engine: _still_there(engine.observe(), standing),
        "capacity": lambda engine: engine.capacity(),
        "launch": lambda engine: engine.launch(new.spec),
        "launch again": lambda engine: engine.launch(standing.spec),
        "stop": lambda engine: engine.stop(standing.spec.run_name, timedelta(0)),
    }


def _still_there(seen: Mapping[str, Observation], standing: Run) -> None:
    assert standing.spec.run_name in seen, "unknown is not dead"
    assert standing.states(seen[standing.spec.run_name]) == [LearnerState.RUNNING] * 2


def _refusal(name: str, ask: Callable[[], object]) -> str:
    """An engine's answer when it can't reach its server. For a moment it may repeat its last observation."""
    began = time.monotonic()
    while time.monotonic() < began + _LIMIT:
        asked = time.monotonic()
        try:
            ask()
        except EngineUnreachable as error:
            assert time.monotonic() - asked < _LIMIT
            return str(error)
        assert name in ("observe", "capacity"), "it changes something, or says that it has"
        time.sleep(0.2)
    raise AssertionError(f"for {_LIMIT:g} s it knew nothing new, and did not say so")


@pytest.mark.parametrize(
    "way", [Way.REFUSED, Way.SILENT, Way.CUT, Way.BROKEN, Way.NONSENSE], ids=lambda way: way.name.lower()
)
def test_a_server_that_is_away_is_unreachable_and_nothing_is_changed(
    bench: Bench, case: Case, standing: Run, require: Require, way: Way
) -> None:
    require("network")
    new, engine = case.run(), bench.engine(timeout=_TIMEOUT)
    assert standing.spec.run_name in answer_of(engine.observe)
    answer_of(engine.capacity)

    def refusals(asked: Engine) -> list[str]:
        return [_refusal(name, partial(ask, asked)) for name, ask in _questions(standing, new).items()]

    with case.proxy.spoiled(way), ThreadPoolExecutor() as both:
        for said in chain.from_iterable(both.map(refusals, (engine, bench.engine(timeout=_TIMEOUT)))):
            assert said
            assert standing.spec.token not in said
            assert new.spec.token not in said
    until(lambda: standing.observe(engine))  # it recovers by itself
    stays(lambda: standing.states(engine.observe()[standing.spec.run_name]) == [LearnerState.RUNNING] * 2, 2.0)
    assert standing.api.agents == _BOTH
    assert not new.leftovers
    assert answer_of(lambda: new.observe(engine)) is None


def test_after_its_streams_were_cut_an_engine_still_sees_what_is_new(
    bench: Bench, case: Case, standing: Run, require: Require
) -> None:
    require("network")
    assert answer_of(standing.observe)
    case.proxy.cut_streams()
    new = case.run().launch(bench.engine())
    new.started()
    case.proxy.cut_streams()
    new.stop(0, bench.engine())
    until(lambda: not (seen := new.observe()) or LearnerState.RUNNING not in new.states(seen))
    assert answer_of(standing.observe)


def _changes_of_a_launch(case: Case) -> int:
    """Of two learners; these need not start for it."""
    with case.proxy.counted() as requests:
        case.run(learners=2, **case.bench.late()).launch()
    return sum(request.changes for request in requests)


def _is_listed_or_gone(run: Run) -> bool:
    return run.observe() is not None or not run.leftovers


def _launch_into(trap: Trap, run: Run, engine: Engine) -> None:
    """Launch, and find that there is no answer to the request that the trap is for."""
    while not trap.sprung.is_set():
        with pytest.raises(EngineUnreachable):
            run.launch(engine)


def test_a_create_that_was_answered_too_late_is_adopted(bench: Bench, case: Case, require: Require) -> None:
    require("network")
    runs = [case.run(learners=2) for _ in range(_changes_of_a_launch(case))]
    for nth, run in enumerate(runs, 1):
        with case.proxy.held(nth, before=False) as trap:
            _launch_into(trap, run, bench.engine(timeout=_TIMEOUT))
    for run in runs:
        run.launch()
    for run in runs:
        run.started()
    stays(lambda: all(run.api.agents == _BOTH for run in runs), 2.0)


def test_half_a_launch_is_listed_and_can_be_completed_or_stopped(bench: Bench, case: Case, require: Require) -> None:
    """The worker or its network has failed between two of the objects that it creates."""
    require("network")
    for finish in (False, True):
        runs = [case.run(learners=2) for _ in range(1, _changes_of_a_launch(case))]
        for made, run in enumerate(runs, 1):
            with case.proxy.cut_after(made), pytest.raises(EngineUnreachable):
                run.launch(bench.engine(timeout=_TIMEOUT))
        for run in runs:
            until(partial(_is_listed_or_gone, run))
            assert run.api.count("ready") == 0
        if finish:
            for run in runs:
                run.launch(bench.engine())
            for run in runs:
                run.started()
                assert run.api.agents == _BOTH
        for run in runs:
            run.finish(bench.engine())


def test_a_create_that_comes_after_the_stop_does_not_stay(bench: Bench, case: Case, require: Require) -> None:
    """The objects that it created are listed, so they are stopped like any orphan, or they go by themselves."""
    require("network")
    runs = [case.run(learners=2) for _ in range(_changes_of_a_launch(case))]
    for nth, run in enumerate(runs, 1):
        with case.proxy.held(nth, before=True) as trap:
            _launch_into(trap, run, bench.engine(timeout=_TIMEOUT))
            run.stop(0)
    time.sleep(1)  # what was held arrives
    for run in runs:
        until(partial(_is_listed_or_gone, run))
        run.finish()
