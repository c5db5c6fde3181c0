"""Sweeps, as workers move them on."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest
from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session
from tests.processes import FORKS
from tests.workers.sweeps import SPACE, Swept, move_and_die, objective, submit
from tests.workers.world import PROJECT, USER, World

from weft_core.settings import Settings
from weft_core.store.models import Event, Job, Member, SweepRow, User
from weft_core.sweeps import trials
from weft_workers import sweeping
from weft_workers.context import Context
from weft_workers.sweeping import Sweeps


@pytest.mark.parametrize("search", ["random", "grid", "tpe", "cmaes"])
def test_a_sweep_runs_all_its_trials_as_jobs_and_names_the_best(
    world: World, context: Context, settings: Settings, search: str
) -> None:
    space = {"lr": [0.001, 0.01, 0.1], "width": {"int": [16, 64], "step": 16}} if search == "grid" else SPACE
    swept = Swept(world, submit(world, settings, search=search, trials=12, parallel=3, parameters=space))
    swept.run(context)
    row, tried = swept.row(), swept.trials()
    assert (row.state, row.reason, row.asked, row.told) == ("COMPLETED", "all trials have ended", 12, 12)
    assert [trial.value for trial in tried] == [objective(trial.parameters) for trial in tried]
    assert row.best_value == max(trial.value or 0.0 for trial in tried)
    assert tried[row.best or 0].value == row.best_value
    jobs = swept.jobs()
    assert sorted(jobs) == list(range(12))
    assert jobs[3].labels == {"sweep": swept.id, "trial": "3"}
    assert jobs[3].manifest["parameters"] == tried[3].parameters
    assert "sweep" not in jobs[3].manifest
    if search == "grid":
        assert len({tuple(sorted(trial.parameters.items())) for trial in tried}) == 12


@pytest.mark.parametrize("search", ["random", "tpe", "cmaes"])
def test_each_decision_can_be_made_again_from_the_rows(
    world: World, context: Context, settings: Settings, search: str
) -> None:
    """So a worker that was restarted, and another worker, decide as if nothing had happened."""
    swept = Swept(world, submit(world, settings, search=search, trials=24, parallel=2))
    swept.run(context)
    with world.transaction() as session:
        sweep = session.get_one(SweepRow, swept.id)
        for trial in swept.trials():
            again = trials.decide(session, sweep, trial.number, trial.seen)
            assert again.parameters == trial.parameters
            # The state of CMA-ES is a pickle, whose bytes say more than the state.
            assert again.memory.keys() == trial.memory.keys()


def test_no_more_trials_are_under_way_than_parallel_says(world: World, context: Context, settings: Settings) -> None:
    swept = Swept(world, submit(world, settings, search="random", trials=9, parallel=4))
    Sweeps(context).run_due()
    assert len(swept.open()) == 4
    swept.finish(swept.open()[1], value=1.0)
    Sweeps(context).run_due()
    assert [trial.number for trial in swept.open()] == [0, 2, 3, 4]
    assert swept.trials()[4].seen == 1


def test_failed_trials_in_a_row_end_the_sweep(world: World, context: Context, settings: Settings) -> None:
    swept = Swept(world, submit(world, settings, search="random", trials=50, parallel=2, stop={"failures": 3}))
    sweeps = Sweeps(context)
    sweeps.run_due()
    for state, value in (("FAILED", None), ("COMPLETED", 0.5), ("FAILED", None), ("COMPLETED", None), ("FAILED", 1.0)):
        swept.finish(swept.open()[0], state, value)
        sweeps.run_due()
    row = swept.row()
    assert (row.state, row.ends_as) == ("STOPPING", "FAILED")
    assert row.reason == "3 trials in a row have failed, the last one, 4: it is FAILED"
    assert swept.trials()[3].reason == "it has reported no finite value of the metric score"
    (left,) = swept.open()
    assert swept.jobs()[left.number].desired == "HALTED"
    assert swept.jobs()[left.number].halt_reason == f"halted by its sweep, {swept.id}, which ends"
    swept.finish(left, "HALTED")
    sweeps.run_due()
    assert (swept.row().state, swept.trials()[left.number].state) == ("FAILED", "HALTED")


def test_a_value_that_is_good_enough_ends_the_sweep(world: World, context: Context, settings: Settings) -> None:
    swept = Swept(world, submit(world, settings, search="random", goal="min", trials=50, stop={"value": 0.1}))
    sweeps = Sweeps(context)
    sweeps.run_due()
    first, second = swept.open()
    swept.finish(first, value=0.2)
    sweeps.run_due()
    assert swept.row().state == "RUNNING"
    swept.finish(second, value=0.1)
    sweeps.run_due()
    swept.finish(swept.open()[0], "HALTED")
    sweeps.run_due()
    row = swept.row()
    assert (row.state, row.best, row.best_value) == ("COMPLETED", 1, 0.1)
    assert row.reason == "trial 1 has reached score = 0.1, and stop.value is 0.1"


def test_after_its_time_no_trial_begins(world: World, context: Context, settings: Settings) -> None:
    swept = Swept(world, submit(world, settings, search="random", trials=50, stop={"after": "1h"}))
    sweeps = Sweeps(context)
    sweeps.run_due()
    with world.transaction() as session:
        earlier = SweepRow.created_at - timedelta(hours=2)
        session.execute(update(SweepRow).values(created_at=earlier))
    swept.finish_open()
    sweeps.run_due()
    row = swept.row()
    assert (row.state, row.asked, row.reason) == ("COMPLETED", 2, "stop.after is over: no new trial begins")


def test_a_deleted_job_leaves_its_trial(world: World, context: Context, settings: Settings) -> None:
    swept = Swept(world, submit(world, settings, search="random", trials=2))
    sweeps = Sweeps(context)
    sweeps.run_due()
    first, second = swept.open()
    swept.finish(first, value=0.5)
    sweeps.run_due()
    with world.transaction() as session:
        session.execute(delete(Job).where(Job.id.in_([first.job_id, second.job_id])))
    sweeps.run_due()
    assert [(trial.state, trial.value) for trial in swept.trials()] == [("COMPLETED", 0.5), ("HALTED", None)]
    assert swept.row().state == "COMPLETED"


@pytest.mark.parametrize("change", ["disabled", "viewer", "no member"])
def test_a_user_who_may_not_submit_any_more_pauses_the_sweep(
    world: World, context: Context, settings: Settings, change: str
) -> None:
    swept = Swept(world, submit(world, settings, search="random", trials=5))
    member = (Member.project_id == PROJECT) & (Member.user_id == USER)
    with world.transaction() as session:
        if change == "disabled":
            session.execute(update(User).where(User.id == USER).values(disabled_at=func.now()))
        elif change == "viewer":
            session.execute(update(Member).where(member).values(role="viewer"))
        else:
            session.execute(delete(Member).where(member))
    Sweeps(context).run_due()
    assert (swept.row().state, swept.trials()) == ("PAUSED", [])
    assert "may not submit" in swept.row().reason


def test_one_sweep_in_trouble_does_not_hold_up_another(
    world: World, context: Context, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, healthy = (Swept(world, submit(world, settings, search="random")) for _ in range(2))
    real = trials.advance

    def advance(session: Session, kit: trials.Kit, sweep: SweepRow) -> list[str]:
        if sweep.id == broken.id:
            raise RuntimeError("trouble")
        return real(session, kit, sweep)

    monkeypatch.setattr(sweeping, "advance", advance)
    Sweeps(context).run_due()
    assert (len(broken.trials()), len(healthy.trials())) == (0, 2)
    assert broken.row().next_step_at is not None


# --- killed ---


@pytest.mark.parametrize(("moment", "made"), [("asked", 0), ("job inserted", 0), ("committed", 2)])
def test_a_worker_that_is_killed_loses_and_doubles_no_trial(
    world: World, context: Context, settings: Settings, moment: str, made: int
) -> None:
    disturbed, calm = (Swept(world, submit(world, settings, search="tpe", trials=14, parallel=2)) for _ in range(2))
    for _ in range(3):
        known = len(disturbed.trials())
        killed = FORKS.Process(target=move_and_die, args=(settings, disturbed.id, moment))
        killed.start()
        killed.join()
        assert killed.exitcode == -signal.SIGKILL
        assert len(disturbed.trials()) == known + made
        Sweeps(context).run_due()
        disturbed.finish_open()
    for swept in (disturbed, calm):
        swept.run(context)
    trace = [(trial.number, trial.parameters, trial.seen, trial.value) for trial in disturbed.trials()]
    assert trace == [(trial.number, trial.parameters, trial.seen, trial.value) for trial in calm.trials()]
    assert len(disturbed.labelled()) == len(disturbed.jobs()) == 14
    with world.transaction() as session:
        submitted = select(Event.job_id).where(Event.kind == "submitted", Event.job_id.in_(disturbed.labelled()))
        assert len(session.scalars(submitted).all()) == 14


def test_two_workers_at_once_ask_for_each_trial_once(world: World, context: Context, settings: Settings) -> None:
    swept = Swept(world, submit(world, settings, search="random", trials=3, parallel=3))
    with world.transaction() as session:
        session.scalars(select(SweepRow).where(SweepRow.id == swept.id).with_for_update()).one()
        Sweeps(context).move(swept.id)  # the other one has it
        assert swept.trials() == []
    Sweeps(context).move(swept.id)
    assert len(swept.trials()) == 3
