"""Lost learners are noticed, living ones are left alone, and runs without an owner can be found and ended."""

from __future__ import annotations

import os
import signal

from tests.engines.bench import Bench, Case, Run, stays, until

from weft_core.engine import LearnerState


def _has_lost(run: Run, rank: int) -> bool:
    """Whether the engine says that this learner has exited or is not there."""
    seen = run.observe()
    learner = seen.learners.get(rank) if seen else None
    return learner is None or learner.state is LearnerState.EXITED


def test_a_killed_agent_is_seen_and_the_others_go_on(bench: Bench, case: Case) -> None:
    run = case.run(learners=2).launch().started()
    bench.kill_agent(run.spec.run_name, 1)
    seen = run.wait(lambda seen: 1 not in seen.learners or seen.learners[1].state is LearnerState.EXITED)
    if learner := seen.learners.get(1):
        assert learner.exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL)
        assert learner.reason
        assert not learner.oom

    def others() -> bool:
        now = run.observe()
        return bool(now and now.learners[0].state is LearnerState.RUNNING)

    stays(others, 3.0)
    run.launch()
    stays(lambda: run.api.agents == {0: 1, 1: 1}, 2.0)  # engines never retry
    run.finish()


def test_a_learner_that_is_taken_away_is_not_running_for_long(bench: Bench, case: Case) -> None:
    run = case.run(learners=2).launch().started()
    bench.remove_learner(run.spec.run_name, 0)
    until(lambda: _has_lost(run, 0))
    stays(lambda: _has_lost(run, 0), 2.0)
    assert run.api.agents == {0: 1, 1: 1}
    run.finish()


def test_an_orphan_is_listed_and_any_engine_ends_it(bench: Bench, case: Case) -> None:
    """Its launcher has died before it could say that it had launched."""
    run = case.run(learners=2)
    worker = os.fork()
    if worker == 0:
        try:
            signal.alarm(60)
            run.launch()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(worker, 0)
    run.wait(lambda seen: seen.learners, bench.engine())
    run.finish(bench.engine())
    until(lambda: _has_lost(run, 0) and _has_lost(run, 1))
