"""Learners are added to a run that is there, each once, and the others notice nothing; or the engine says it can't."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from tests.engines.bench import Bench, Case, Run, stays, until

from weft_core.engine import EngineUnreachable, LaunchRefused, LearnerState


def _half(run: Run) -> Run:
    """With two of its three learners, which wait for the third (so no command runs yet)."""
    whole = run.spec
    run.spec = replace(whole, learners=2)
    run.launch()
    until(lambda: run.api.agents == {0: 1, 1: 1})
    run.spec = whole
    return run


def test_a_learner_is_added_once_whoever_asks(bench: Bench, case: Case) -> None:
    run = _half(case.run(learners=3))
    if not case.engine.grows_runs:
        with pytest.raises(LaunchRefused):
            case.engine.grow(run.spec, [2])
        run.finish()
        return
    problems: list[Exception] = []

    def ask() -> None:
        try:
            bench.engine().grow(run.spec, [2])
        except EngineUnreachable:
            pass  # 'try again later' is an answer
        except Exception as error:
            problems.append(error)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert not problems
    case.engine.grow(run.spec, [2])
    run.started()
    stays(lambda: run.api.agents == {0: 1, 1: 1, 2: 1}, 2.0)
    run.stop(0)
    run.forgotten()


def test_one_that_was_added_and_died_stays_dead(bench: Bench, case: Case) -> None:
    run = _half(case.run(learners=3))
    if not case.engine.grows_runs:
        pytest.skip(f"does not apply to {bench.kind}: its runs keep their size")
    case.engine.grow(run.spec, [2])
    run.started()
    bench.kill_agent(run.spec.run_name, 2)
    run.wait(lambda seen: 2 not in seen.learners or seen.learners[2].state is LearnerState.EXITED)
    case.engine.grow(run.spec, [2])
    run.launch()
    stays(lambda: run.api.agents == {0: 1, 1: 1, 2: 1}, 2.0)
    run.finish()


def test_nothing_is_added_to_a_run_that_is_not_there(bench: Bench, case: Case) -> None:
    run = case.run(learners=3)
    with pytest.raises((LaunchRefused, EngineUnreachable)):
        case.engine.grow(run.spec, [2])
    assert not run.leftovers
    assert not run.api.asked
