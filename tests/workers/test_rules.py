"""Rules of manifests: the workers' actions when one holds, and rules about time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, text, update
from tests.workers.test_delivering import target
from tests.workers.world import World

from weft_core.lifecycle.actions import Fire
from weft_core.lifecycle.rules import check_rules
from weft_core.lifecycle.states import Desired, JobState, LearnerPhase
from weft_core.lifecycle.view import JobView, LearnerView, View
from weft_core.rules import MetricCondition, NoStepCondition, parse_condition
from weft_core.settings import TimingSettings
from weft_core.store.models import Delivery, Job, Learner, MetricCursor, RuleFiring
from weft_core.store.rules import note_firing
from weft_workers.context import Context
from weft_workers.delivering import Deliverer

NAN = "metric loss is nan"
NOW = datetime(2026, 1, 31, 8, 15, tzinfo=UTC)


def fire(world: World, job_id: str, rule: int = 0, found: str = "loss was nan at step 12 (learner 1)") -> None:
    """As the API does when a line or a value fulfils the rule."""
    with world.transaction() as session:
        note_firing(session, session.get_one(Job, job_id), rule, 1, found)


def fired(world: World, job_id: str) -> list[RuleFiring]:
    with world.transaction() as session:
        return list(session.scalars(select(RuleFiring).where(RuleFiring.job_id == job_id)))


def queued(world: World, job_id: str) -> list[int]:
    """The targets of the deliveries that wait."""
    with world.transaction() as session:
        return sorted(session.scalars(select(Delivery.target).where(Delivery.job_id == job_id)))


def test_a_rule_halts_as_a_user_does_and_the_reason_names_it(world: World, context: Context) -> None:
    job_id = world.running(rules=[{"when": NAN, "then": ["halt"]}])
    fire(world, job_id)
    Deliverer(context).act()
    assert world.job(job_id).desired == "HALTED"
    assert world.events(job_id, "rule") == [f"the rule {NAN!r} has fired: loss was nan at step 12 (learner 1)"]
    world.step(job_id, times=3)
    job = world.job(job_id)
    reason = f"halted by the rule {NAN!r}: loss was nan at step 12 (learner 1)"
    assert (job.state, job.reason) == ("HALTED", reason)
    assert world.events(job_id, "desired") == [f"to be {reason}"]
    assert world.attempts(job_id)[0].outcome == "HALTED"


def test_a_queued_job_is_halted_with_the_same_reason(world: World, context: Context) -> None:
    job_id = world.submit(rules=[{"when": NAN, "then": ["halt"]}])
    fire(world, job_id)
    Deliverer(context).act()
    world.step(job_id)
    assert world.job(job_id).reason.startswith(f"halted by the rule {NAN!r}: ")


def test_a_rule_fires_once_and_notifies_all_targets(world: World, context: Context) -> None:
    targets = [target("http://127.0.0.1:1/a", "COMPLETED"), {**target("http://127.0.0.1:1/b"), "on": []}]
    job_id = world.running(notify=targets, rules=[{"when": NAN, "then": ["notify"]}])
    deliverer = Deliverer(context)
    for found in ("loss was nan at step 12", "loss was nan at step 13"):
        fire(world, job_id, found=found)
        deliverer.act()
        deliverer.act()
    assert queued(world, job_id) == [0, 1]
    assert len(world.events(job_id, "rule")) == 1
    assert world.job(job_id).desired == "RUNNING"
    world.exit(job_id, 0)
    world.step(job_id, times=3)
    assert world.job(job_id).state == "COMPLETED"
    assert queued(world, job_id) == [0, 0, 1], "the first target also gets the end"


def test_a_resumed_job_is_guarded_again(world: World, context: Context) -> None:
    job_id = world.running(rules=[{"when": NAN, "then": ["halt"]}])
    for _ in range(2):
        fire(world, job_id)
        Deliverer(context).act()
        world.step(job_id, times=3)
        assert world.job(job_id).state == "HALTED"
        world.resume(job_id)
        assert (world.job(job_id).halt_reason, fired(world, job_id)) == (None, [])
    world.halt(job_id)
    world.step(job_id)
    assert world.job(job_id).reason == "halted by request"


def test_a_rule_that_fires_when_the_job_has_ended_only_notifies(world: World, context: Context) -> None:
    rules = [{"when": "log /bye/", "then": ["notify", "halt"]}]
    job_id = world.running(notify=[target("http://127.0.0.1:1", "QUEUED")], rules=rules)
    world.exit(job_id, 0)
    world.step(job_id, times=3)
    fire(world, job_id, found="line 7 of learner 1: bye")
    Deliverer(context).act()
    job = world.job(job_id)
    assert (job.state, job.desired) == ("COMPLETED", "RUNNING")
    assert queued(world, job_id) == [0, 0], "QUEUED, and the rule"


def test_a_firing_is_told_in_one_short_line(world: World) -> None:
    job_id = world.submit(rules=[{"when": "log /x/", "then": ["halt"]}])
    fire(world, job_id, found="line 1: \x1b[31mx" + "y" * 5000)
    (firing,) = fired(world, job_id)
    assert firing.found.startswith("line 1: \ufffd[31mx")
    assert len(firing.found) == 501


def test_no_step_for_a_while_fires_the_rule(world: World) -> None:
    job_id = world.running(notify=[target("http://127.0.0.1:1", "FAILED")], rules=[
        {"when": "no step for 10m", "then": ["notify"]}, {"when": "no step for 1h", "then": ["halt"]}
    ])  # fmt: skip
    with world.transaction() as session:
        session.add(MetricCursor(job_id=job_id, project_id="prj-1", stepped_at=func.now()))

    def quiet(minutes: int) -> None:
        with world.transaction() as session:
            span = {"m": minutes}
            session.execute(text("update jobs set state_since = now() - make_interval(mins => 300)"))
            session.execute(text("update metric_cursors set stepped_at = now() - make_interval(mins => :m)"), span)
            session.execute(update(Learner).values(heartbeat_at=func.now()))
        world.step(job_id, times=2)

    quiet(9)
    assert fired(world, job_id) == []
    quiet(11)
    assert world.events(job_id, "rule") == ["the rule 'no step for 10m' has fired: no metric came for 10m"]
    assert queued(world, job_id) == [0]
    quiet(30)
    assert len(fired(world, job_id)) == 1
    quiet(61)
    assert world.job(job_id).desired == "HALTED"


def view(*learners: LearnerView, **job: Any) -> View:
    usual: dict[str, Any] = {
        "state_since": NOW - timedelta(hours=2),
        "stepped_at": NOW - timedelta(hours=1),
        "step_rules": ((3, NoStepCondition(600)),),
    }
    known = JobView("job-1", "prj-1", "local", JobState.PROCESSING, Desired.RUNNING, 1, 0)
    return View(now=NOW, timings=TimingSettings(), job=replace(known, **{**usual, **job}), learners=learners)


def learner(**changes: Any) -> LearnerView:
    return replace(LearnerView(0, LearnerPhase.PROCESSING, heartbeat_at=NOW), **changes)


@pytest.mark.parametrize(
    ("seen", "holds"),
    [
        (view(learner()), True),
        (view(learner(), stepped_at=NOW - timedelta(minutes=9)), False),
        (view(learner(), stepped_at=None), True),
        (view(learner(), stepped_at=None, state_since=NOW - timedelta(minutes=9)), False),
        (view(learner(), state_since=NOW - timedelta(minutes=9)), False),  # a new attempt
        (view(learner(), state=JobState.STORING), False),
        (view(learner(heartbeat_at=NOW - timedelta(minutes=1))), False),  # silent: its metrics may wait
        (view(learner(heard_since=NOW - timedelta(minutes=1))), False),  # it was silent until a moment ago
        (view(learner(heard_since=NOW - timedelta(minutes=11))), True),
        (view(learner(), replace(learner(), rank=1, phase=LearnerPhase.EXITED, heartbeat_at=None)), True),
        (view(learner(), step_rules=()), False),
    ],
)
def test_when_a_rule_about_steps_holds(seen: View, holds: bool) -> None:
    assert check_rules(seen) == (Fire(3, "no metric came for 10m") if holds else None)


@pytest.mark.parametrize(
    ("when", "true", "false"),
    [
        ("metric loss is nan", [float("nan")], [float("inf"), 0.0]),
        ("metric loss > 1e3", [1001.0, float("inf")], [1000.0, float("nan"), float("-inf")]),
        ("metric val/accuracy < -.5", [-0.6, float("-inf")], [-0.5, float("nan")]),
    ],
)
def test_conditions_of_metrics(when: str, true: list[float], false: list[float]) -> None:
    condition = parse_condition(when)
    assert isinstance(condition, MetricCondition)
    assert [condition.holds(value) for value in true + false] == [True] * len(true) + [False] * len(false)


def test_a_halt_that_a_user_has_asked_for_keeps_its_reason(world: World, context: Context) -> None:
    job_id = world.running(rules=[{"when": NAN, "then": ["halt"]}])
    world.halt(job_id)
    fire(world, job_id)
    Deliverer(context).act()
    world.step(job_id, times=3)
    assert world.job(job_id).reason == "halted by request"
