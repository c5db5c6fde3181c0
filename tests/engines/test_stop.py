"""A stop is SIGTERM, a grace, SIGKILL, and then nothing is left; asked for once or many times."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from tests.engines import processes
from tests.engines.bench import PATIENCE, Bench, Case, Run, until
from tests.engines.conftest import Require
from tests.engines.learners import HEARD, POLITE, STUBBORN

from weft_core.engine import LearnerState


def begin(case: Case) -> Mapping[str, Run]:
    """Runs of the first three tests, which begin together: most of their time is waiting for their agents."""
    runs = {"two": case.run(POLITE, learners=2), "polite": case.run(POLITE), "stubborn": case.run(STUBBORN)}
    return {name: run.launch() for name, run in runs.items()}


@pytest.fixture(scope="module")
def begun(together: Case) -> Mapping[str, Run]:
    return begin(together)


def test_one_stop_is_enough_and_gives_time_to_finish(begun: Mapping[str, Run]) -> None:
    run = begun["two"].started()
    began = time.monotonic()
    run.stop(PATIENCE * 2)
    assert time.monotonic() - began < PATIENCE, "it returns at once"
    until(lambda: run.api.said("finished"))
    run.forgotten()
    assert time.monotonic() - began < PATIENCE * 2, "who has finished is not waited for"


def test_stopping_again_or_what_never_was_is_no_error(bench: Bench, case: Case, begun: Mapping[str, Run]) -> None:
    run = begun["polite"].started()
    began = time.monotonic()

    def stopped() -> bool:
        run.stop(max(0.0, PATIENCE - (time.monotonic() - began)), bench.engine())  # as the reconciler does
        return run.observe() is None

    until(stopped)
    assert run.api.count("finished") == 1
    assert run.api.count("told") == 1
    run.forgotten()
    run.stop(5)
    case.engine.observe()
    case.run().stop(5)


def test_who_ignores_it_is_killed_when_the_grace_is_over_and_not_before(begun: Mapping[str, Run]) -> None:
    grace = 12.0
    run = begun["stubborn"].started()
    began = time.monotonic()
    run.stop(grace)
    until(lambda: any(HEARD in process for process in processes.of([run.spec])))
    until(lambda: not processes.of([run.spec]))
    assert time.monotonic() - began > grace - 2
    run.forgotten()


def test_a_shorter_grace_shortens_it_and_a_longer_one_does_not_lengthen_it(case: Case, require: Require) -> None:
    require("shortening")
    run = case.run(STUBBORN).launch().started()
    run.stop(600)
    until(lambda: run.api.said("told"))
    run.stop(2)
    run.stop(900)
    run.forgotten()


def test_what_is_still_starting_is_stopped_at_once(bench: Bench, case: Case) -> None:
    run = case.run(learners=2, **bench.late()).launch()
    run.wait(lambda seen: True)
    run.stop(600)
    run.forgotten()
    assert not run.api.asked


def test_a_stop_right_after_the_launch_leaves_nothing(case: Case) -> None:
    runs = [case.run(learners=2) for _ in range(2)]
    for run in runs:
        run.launch().finish()
    until(
        lambda: not any(seen and LearnerState.RUNNING in run.states(seen) for run in runs for seen in [run.observe()])
    )
