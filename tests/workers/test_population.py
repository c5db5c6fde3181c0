"""Population based training, as workers move it on."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import select, text
from tests.processes import FORKS
from tests.workers.sweeps import Swept, move_and_die, objective, submit
from tests.workers.world import World

from weft_core.settings import Settings
from weft_core.store.jobs import Conflict, request_delete
from weft_core.store.models import Job, SweepRow
from weft_core.sweeps import trials
from weft_workers.context import Context
from weft_workers.sweeping import Sweeps

PBT: dict[str, Any] = {
    "search": "pbt",
    "population": 4,
    "parallel": 4,
    "rungs": {"parameter": "epochs", "max": 6, "every": 2},
}


def learnt(parameters: Mapping[str, Any]) -> float:
    return objective(parameters) + int(parameters["epochs"]) / 1e6


def run(swept: Swept, context: Context) -> None:
    for _ in range(100):
        Sweeps(context).run_due()
        if swept.row().ended_at is not None:
            return
        swept.finish_open(learnt)
    raise AssertionError("the sweep does not end")


def test_a_rung_goes_on_from_the_stored_checkpoints_of_the_one_before(
    world: World, context: Context, settings: Settings
) -> None:
    swept = Swept(world, submit(world, settings, **PBT))
    sweeps = Sweeps(context)
    sweeps.run_due()
    first = swept.open()
    assert [(trial.number, trial.parent, trial.parameters["epochs"]) for trial in first] == [
        (number, None, 2) for number in range(4)
    ]
    for trial in first[1:]:
        swept.finish(trial, value=learnt(trial.parameters))
    sweeps.run_due()
    assert [trial.number for trial in swept.open()] == [0], "a rung waits for all trials of the one before"
    swept.finish_open(learnt)
    sweeps.run_due()
    jobs, order = swept.jobs(), sorted(first, key=lambda trial: -learnt(trial.parameters))
    best, worst = order[0], order[-1]
    for trial in swept.open():
        before = first[trial.number - 4]
        source = best if before.number == worst.number else before
        assert (trial.parent, trial.parameters["epochs"]) == (source.number, 4)
        assert jobs[trial.number].checkpoint_of == {"job": source.job_id, "shared": True}
        told = {name: trial.parameters[name] for name in ("lr", "width")}
        same = told == {name: source.parameters[name] for name in told}
        assert same == (before.number != worst.number), "only the copy explores"
        assert world.events(trial.job_id or "", "checkpoint") == [
            f"begins with the last checkpoint of {source.job_id}, trial {source.number}"
        ]
    run(swept, context)
    row, tried = swept.row(), swept.trials()
    assert (row.state, row.asked, row.told) == ("COMPLETED", 12, 12)
    assert [trial.parameters["epochs"] for trial in tried] == [2] * 4 + [4] * 4 + [6] * 4
    assert row.best_value == max(trial.value or 0.0 for trial in tried)
    with world.transaction() as session:
        sweep = session.get_one(SweepRow, swept.id)
        again = [trials.decide(session, sweep, trial.number, trial.seen) for trial in tried]
    assert [(made.parent, made.parameters) for made in again] == [
        (trial.parent, {name: trial.parameters[name] for name in ("lr", "width")}) for trial in tried
    ]


@pytest.mark.parametrize("moment", ["job inserted", "committed"])
def test_a_worker_that_is_killed_changes_no_decision(
    world: World, context: Context, settings: Settings, moment: str
) -> None:
    disturbed, calm = (Swept(world, submit(world, settings, **PBT)) for _ in range(2))
    Sweeps(context).run_due()
    for trial in disturbed.open()[::-1]:  # they end in another order
        disturbed.finish(trial, value=learnt(trial.parameters))
    killed = FORKS.Process(target=move_and_die, args=(settings, disturbed.id, moment))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert len(disturbed.labelled()) == (8 if moment == "committed" else 4)
    for swept in (disturbed, calm):
        run(swept, context)
    traces = [
        [(trial.number, trial.parent, trial.parameters, trial.value) for trial in swept.trials()]
        for swept in (disturbed, calm)
    ]
    assert traces[0] == traces[1]
    assert len(disturbed.labelled()) == 12


def test_what_a_trial_begins_with_is_not_deleted_before_it_has_ended(
    world: World, context: Context, settings: Settings
) -> None:
    swept = Swept(world, submit(world, settings, **PBT))
    sweeps = Sweeps(context)
    sweeps.run_due()
    swept.finish_open(learnt)
    first = swept.trials()
    best = max(first, key=lambda trial: learnt(trial.parameters))
    with world.transaction() as session:
        session.scalars(select(Job).where(Job.id == best.job_id).with_for_update()).one()
        sweeps.move(swept.id)
        assert best.number not in [trial.parent for trial in swept.open()], "it does not wait for the job's lock"
        assert swept.row().next_step_at is not None
    sweeps.move(swept.id)
    readers = [trial for trial in swept.open() if trial.parent == best.number]
    assert len(readers) == 2
    with world.transaction() as session, pytest.raises(Conflict, match="begins with its checkpoint and has not ended"):
        request_delete(session, session.get_one(Job, best.job_id))
    swept.finish_open(learnt)
    with world.transaction() as session:
        request_delete(session, session.get_one(Job, best.job_id))


def test_trials_whose_checkpoints_are_gone_are_not_gone_on_from(
    world: World, context: Context, settings: Settings
) -> None:
    swept = Swept(world, submit(world, settings, **PBT))
    sweeps = Sweeps(context)
    sweeps.run_due()
    swept.finish_open(learnt)
    first = sorted(swept.trials(), key=lambda trial: -learnt(trial.parameters))
    with world.transaction() as session:
        request_delete(session, session.get_one(Job, first[0].job_id))
        gone = text("""update jobs set removed = jsonb_build_object('results', jsonb_build_object('at', now()))
            where id = :id""")
        session.execute(gone, {"id": first[1].job_id})
    sweeps.move(swept.id)
    parents = {trial.parent for trial in swept.open()}
    assert parents in ({first[2].number}, {trial.number for trial in first[2:]})
    for trial in swept.open():
        swept.finish(trial, "HALTED")
    sweeps.move(swept.id)
    sweeps.move(swept.id)
    row = swept.row()
    assert row.state == "FAILED"
    assert row.reason == "no trial of rung 2 has a value and a checkpoint, so rung 3 can't begin"
