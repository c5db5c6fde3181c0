"""Sweeps whose trials run in rungs, as workers move them on."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import delete, select
from tests.processes import FORKS
from tests.workers.sweeps import Swept, move_and_die, objective, submit
from tests.workers.world import World

from weft_core.lifecycle.states import LearnerPhase
from weft_core.settings import Settings
from weft_core.store.models import Event, Job
from weft_workers.context import Context
from weft_workers.sweeping import Sweeps

RUNGS = {"parameter": "epochs", "max": 9}


def learnt(parameters: Mapping[str, Any]) -> float:
    """More epochs make a trial a little better, and change no order."""
    return objective(parameters) + int(parameters["epochs"]) / 1e6


def run(swept: Swept, context: Context) -> None:
    for _ in range(100):
        Sweeps(context).run_due()
        if swept.row().ended_at is not None:
            return
        swept.finish_open(learnt)
    raise AssertionError("the sweep does not end")


def begun(world: World, job_id: str | None) -> list[str]:
    """Why the job of a trial was opened again."""
    with world.transaction() as session:
        told = (
            select(Event.message).where(Event.job_id == job_id, Event.message.startswith("goes on")).order_by(Event.id)
        )
        return list(session.scalars(told))


@pytest.mark.parametrize("sync", [True, False])
def test_only_good_trials_go_on(world: World, context: Context, settings: Settings, sync: bool) -> None:
    swept = Swept(world, submit(world, settings, search="asha", trials=9, rungs={**RUNGS, "sync": sync}))
    run(swept, context)
    row, tried = swept.row(), swept.trials()
    assert (row.state, row.asked, row.told) == ("COMPLETED", 9, 9)
    best = sorted(tried, key=lambda trial: -learnt({**trial.parameters, "epochs": 0}))
    ends = [trial.parameters["epochs"] for trial in best]
    assert ends[0] == 9
    assert set(ends[1:3]) == {3}
    if sync:
        assert ends[3:] == [1] * 6
    assert (row.best, row.best_value) == (best[0].number, best[0].value)
    assert [len(trial.results) for trial in best[:3]] == [3, 2, 2]
    assert best[0].value == learnt(best[0].parameters)
    assert begun(world, best[0].job_id) == ["goes on to epochs = 3", "goes on to epochs = 9"]
    jobs = swept.jobs()
    assert len(swept.labelled()) == 9, "one job for each trial"
    assert all(jobs[trial.number].manifest["parameters"] == trial.parameters for trial in tried)


def test_hyperband_begins_some_trials_at_higher_rungs(world: World, context: Context, settings: Settings) -> None:
    swept = Swept(world, submit(world, settings, search="hyperband", trials=9, parallel=9, rungs=RUNGS))
    Sweeps(context).run_due()
    assert [trial.parameters["epochs"] for trial in swept.open()] == [1] * 4 + [3] * 3 + [9] * 2
    run(swept, context)
    assert swept.row().told == 9


@pytest.mark.parametrize("moment", ["promoted", "committed"])
def test_a_worker_that_is_killed_loses_and_doubles_no_promotion(
    world: World, context: Context, settings: Settings, moment: str
) -> None:
    rungs = {**RUNGS, "sync": True}
    disturbed, calm = (Swept(world, submit(world, settings, search="asha", trials=9, rungs=rungs)) for _ in range(2))
    while sum(trial.state == "COMPLETED" for trial in disturbed.trials()) < 8:
        Sweeps(context).run_due()
        disturbed.finish(disturbed.open()[0], value=learnt(disturbed.open()[0].parameters))
    # The last trial of the rung has ended: now two trials go on.
    killed = FORKS.Process(target=move_and_die, args=(settings, disturbed.id, moment))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert sum(trial.rung == 1 for trial in disturbed.trials()) == (2 if moment == "committed" else 0)
    for swept in (disturbed, calm):
        run(swept, context)
    traces = [
        [(trial.number, trial.parameters, trial.rung, trial.results) for trial in swept.trials()]
        for swept in (disturbed, calm)
    ]
    assert traces[0] == traces[1]
    for number, job in disturbed.jobs().items():
        assert len(begun(world, job.id)) == disturbed.trials()[number].rung


def test_a_trial_whose_node_is_lost_runs_again_and_changes_no_promotion(
    world: World, context: Context, settings: Settings
) -> None:
    rungs = {"parameter": "epochs", "max": 2, "reduction": 2, "sync": True}
    disturbed, calm = (
        Swept(world, submit(world, settings, retries=1, search="asha", trials=2, rungs=rungs)) for _ in range(2)
    )
    Sweeps(context).move(disturbed.id)
    lost, other = disturbed.open()
    assert lost.job_id is not None
    disturbed.finish(other, value=learnt(other.parameters))
    world.step(lost.job_id)
    world.phase(lost.job_id, LearnerPhase.PROCESSING)
    world.step(lost.job_id)
    world.engine.lose_learner(f"weft-{lost.job_id}-1", 0)
    for _ in range(5):
        world.pass_time(60)
        world.step(lost.job_id)
    assert world.attempts(lost.job_id)[0].outcome == "LOST"
    Sweeps(context).move(disturbed.id)
    assert [(trial.number, trial.rung) for trial in disturbed.open()] == [(lost.number, 0)], "the rung waits for it"
    for swept in (disturbed, calm):
        run(swept, context)
    traces = [
        [(trial.number, trial.parameters, trial.rung, trial.results, trial.state) for trial in swept.trials()]
        for swept in (disturbed, calm)
    ]
    assert traces[0] == traces[1]
    assert len(disturbed.labelled()) == 2, "no further job"


def test_a_trial_that_fails_on_a_higher_rung_is_not_the_best_any_more(
    world: World, context: Context, settings: Settings
) -> None:
    swept = Swept(world, submit(world, settings, search="asha", trials=9, parallel=1, rungs=RUNGS))
    sweeps = Sweeps(context)
    for value in (0.9, 0.5, 0.1):
        sweeps.run_due()
        swept.finish(swept.open()[0], value=value)
    sweeps.run_due()
    first = swept.open()[0]
    assert (first.number, first.rung, first.value, swept.row().told) == (0, 1, 0.9, 2)
    swept.finish(first, "FAILED")
    sweeps.run_due()
    assert (swept.row().best, swept.row().best_value) == (1, 0.5)
    assert (swept.trials()[0].state, swept.trials()[0].value) == ("FAILED", None)


def test_a_trial_whose_job_is_deleted_does_not_go_on(world: World, context: Context, settings: Settings) -> None:
    rungs = {**RUNGS, "sync": True}
    swept = Swept(world, submit(world, settings, search="asha", trials=9, parallel=9, rungs=rungs))
    Sweeps(context).run_due()
    swept.finish_open(learnt)
    best = max(swept.trials(), key=lambda trial: learnt(trial.parameters))
    with world.transaction() as session:
        session.scalars(select(Job).where(Job.id == best.job_id).with_for_update()).one()
        Sweeps(context).move(swept.id)
        assert (swept.row().state, swept.open()) == ("RUNNING", []), "it waits for the job, and takes no other trial"
        assert swept.row().next_step_at is not None
        session.execute(delete(Job).where(Job.id == best.job_id))
    Sweeps(context).move(swept.id)
    assert len(swept.open()) == 2
    assert best.number not in [trial.number for trial in swept.open()]


def test_after_its_time_no_trial_goes_on(world: World, context: Context, settings: Settings) -> None:
    swept = Swept(
        world, submit(world, settings, search="asha", trials=9, parallel=9, stop={"after": "1s"}, rungs=RUNGS)
    )
    Sweeps(context).run_due()
    with world.transaction() as session:
        row = session.get_one(type(swept.row()), swept.id)
        row.created_at = row.created_at.replace(year=2020)
    swept.finish_open(learnt)
    Sweeps(context).run_due()
    assert (swept.row().state, {trial.rung for trial in swept.trials()}) == ("COMPLETED", {0})
