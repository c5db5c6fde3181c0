"""An engine reports the true state of its runs."""

from __future__ import annotations

from tests.engines.bench import OTHERS, Bench, Case, Run, in_another_process, stays
from tests.engines.conftest import Require
from tests.engines.learners import EATS_MEMORY

from weft_core.engine import LearnerState


def test_a_learner_that_runs_is_running_on_a_node(bench: Bench, standing: Run) -> None:
    seen = standing.wait(lambda seen: standing.states(seen) == [LearnerState.RUNNING] * 2)
    assert sorted(seen.learners) == [0, 1]
    assert not seen.gone
    assert not seen.failed
    for rank, learner in seen.learners.items():
        assert (learner.rank, learner.exit_code, learner.oom, learner.interrupted, learner.unreachable) == (
            rank,
            None,
            False,
            False,
            False,
        )
        assert learner.node in {node.name for node in bench.engine().capacity().nodes}


def test_a_new_engine_and_another_process_see_the_same(bench: Bench, case: Case, standing: Run) -> None:
    """An engine made before a fork works after it, too: Celery's workers are forks."""

    def observe() -> None:
        for engine in (case.engine, bench.engine()):
            standing.wait(lambda seen: standing.states(seen) == [LearnerState.RUNNING] * 2, engine)

    case.engine.observe()
    observe()
    in_another_process(observe)


def test_an_installation_sees_its_own_runs_alone(bench: Bench, case: Case, standing: Run) -> None:
    theirs = case.run(installation=OTHERS).launch(bench.engine(OTHERS))
    theirs.wait(lambda seen: seen.learners, bench.engine(OTHERS))
    assert theirs.observe() is None
    assert standing.observe(bench.engine(OTHERS)) is None


def test_how_learners_end(bench: Bench, case: Case) -> None:
    well = case.run("exit 0", learners=2).launch()
    badly = case.run("exit 3").launch()
    killed = case.run("kill -KILL $$").launch()
    assert [(learner.state, learner.exit_code, learner.oom) for learner in well.ended().values()] == [
        (LearnerState.EXITED, 0, False)
    ] * 2
    assert [(learner.exit_code, learner.oom, learner.interrupted) for learner in badly.ended().values()] == [
        (3, False, False)
    ]
    [learner] = killed.ended().values()
    # The agent says 137, which is also all that some platforms say of an agent that was killed itself.
    assert learner.exit_code in (137, -9)
    assert not learner.interrupted
    for run in (well, badly):
        run.launch()  # it has run, and does not run again
    stays(lambda: well.api.agents == {0: 1, 1: 1} and badly.api.agents == {0: 1}, 2.0)
    assert badly.ended()[0].exit_code == 3
    for run in (well, badly, killed):
        run.finish(bench.engine())


def test_out_of_memory_is_said(case: Case, require: Require) -> None:
    require("memory limit")
    run = case.run(EATS_MEMORY).launch()
    [learner] = run.ended().values()
    assert learner.oom
    assert "memory" in learner.reason
    assert learner.exit_code != 0
    assert not learner.interrupted
