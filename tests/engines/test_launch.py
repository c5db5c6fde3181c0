"""A gang is started once, however often and by however many callers; an impossible gang is never started."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from tests.engines import processes
from tests.engines.bench import OTHERS, OURS, Bench, Case, Run, in_another_process, stays, until

from weft_core.engine import EngineUnreachable, LaunchRefused, LearnerState


def test_every_learner_starts_once_with_its_rank(standing: Run) -> None:
    assert standing.api.agents == {0: 1, 1: 1}
    for rank in (0, 1):
        assert f"rank {rank} of 2" in standing.api.learners[rank].lines


def test_the_token_stands_on_no_command_line(standing: Run) -> None:
    assert processes.that_show(standing.spec.token) == []


def test_launching_again_adopts_what_is_there(bench: Bench, standing: Run) -> None:
    there = sorted(bench.things(standing.spec.run_name))
    standing.launch()
    standing.launch(bench.engine())
    in_another_process(standing.launch)
    in_another_process(lambda: standing.launch(bench.engine()))
    stays(lambda: standing.api.agents == {0: 1, 1: 1}, 2.0)
    assert sorted(bench.things(standing.spec.run_name)) == there


def test_workers_that_launch_at_the_same_time_start_one_gang(bench: Bench, case: Case) -> None:
    run = case.run(learners=2)
    together, problems = threading.Barrier(4), list[Exception]()

    def work() -> None:
        engine = bench.engine()
        together.wait()
        try:
            run.launch(engine)
        except EngineUnreachable:
            pass  # 'try again later' is an answer
        except Exception as error:
            problems.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not problems
    run.launch().started()
    stays(lambda: run.api.agents == {0: 1, 1: 1}, 2.0)
    assert list(case.engine.observe()).count(run.spec.run_name) == 1


def test_a_namesake_is_neither_adopted_nor_stopped(bench: Bench, case: Case) -> None:
    theirs = bench.engine(OTHERS)
    run = case.run(installation=OTHERS).launch(theirs).started(theirs)
    for changes in ({"installation": OURS}, {"installation": OTHERS, "job_id": "another", "attempt": 2}):
        spec = replace(run.spec, **changes)
        engine = bench.engine(spec.installation)
        with pytest.raises((EngineUnreachable, LaunchRefused), match=run.spec.run_name):
            engine.launch(spec)
    assert run.observe() is None
    run.stop(0)
    stays(lambda: run.wait(lambda seen: True, theirs).learners[0].state is LearnerState.RUNNING, 3.0)
    assert run.api.agents == {0: 1}


def test_an_image_that_is_not_there_is_named(bench: Bench, case: Case) -> None:
    run, name = case.run(image=bench.no_image), bench.no_image.partition(":")[0]
    try:
        run.launch()
    except LaunchRefused as error:
        said, code = str(error), error.code
    else:
        seen = run.wait(lambda seen: name in run.reasons(seen))
        said, code = run.reasons(seen), seen.failed_code
    assert name in said
    assert code is None or code.startswith("S1")
    assert not run.api.asked


def test_a_size_that_no_node_has_is_refused_or_waits_with_a_reason(bench: Bench, case: Case) -> None:
    run = case.run(resources=replace(bench.each, cpus=4096), learners=2)
    if not case.engine.capacity().grows:
        with pytest.raises(LaunchRefused, match="CPU"):
            run.launch()
        return
    seen = run.launch().wait(lambda seen: "cpu" in run.reasons(seen).lower())
    assert set(run.states(seen)) == {LearnerState.STARTING}
    run.stop(60)
    run.forgotten()
    assert not run.api.asked


def test_of_a_gang_that_fits_in_part_no_learner_runs_user_code(bench: Bench, case: Case) -> None:
    run = case.run(resources=bench.scarce(), learners=2)
    try:
        run.launch()
    except (LaunchRefused, EngineUnreachable):
        assert not run.leftovers
        return
    run.wait(
        lambda seen: any(
            learner.state is LearnerState.STARTING and learner.reason for learner in seen.learners.values()
        )
    )
    stays(lambda: run.api.count("ready") == 0, 3.0)
    run.finish()


def test_what_waits_for_room_starts_when_there_is_some(bench: Bench, case: Case) -> None:
    first = case.run(resources=bench.scarce()).launch().started()
    second = case.run(resources=bench.scarce())

    def launched() -> bool:
        try:
            second.launch()
        except EngineUnreachable:
            return False  # no room, try again later
        return True

    launched()
    stays(lambda: not second.api.asked, 3.0)
    first.stop(0)
    until(launched)
    second.started()
    assert second.api.agents == {0: 1}
