"""Schedules, as workers start their jobs: exactly once, however many workers there are and whenever they die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import cycle
from typing import Any, cast

import pytest
import yaml
from hypothesis import HealthCheck, example, given
from hypothesis import settings as budget
from hypothesis import strategies as st
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session
from tests.processes import FORKS
from tests.workers.fake_engine import FakeEngine
from tests.workers.world import PROJECT, USER, World

from weft_core import schedules
from weft_core.cron import last_time, next_time
from weft_core.engine_settings import LocalSettings
from weft_core.ids import new_id
from weft_core.manifest import parse_manifest
from weft_core.settings import Settings
from weft_core.store import registry
from weft_core.store.models import Job, Member, Model, ModelVersion, Predecessor, Project, ScheduleRow, Start, User
from weft_core.store.scope import Scope
from weft_core.store.submitting import insert_job
from weft_core.wake import Wake
from weft_workers import scheduling
from weft_workers.context import Context, make_context
from weft_workers.scheduling import Schedules


def hourly() -> str:
    """Each hour, half an hour away from now: no time comes by itself during a test."""
    return f"{(datetime.now(UTC).minute + 30) % 60} * * * *"


def create(world: World, settings: Settings, **keys: Any) -> str:
    """A schedule of the world's user; ``keys`` are keys of the manifest."""
    manifest = {"name": "nightly", "framework": {"name": "python", "command": "python train.py"}, **keys}
    here = settings.model_copy(update={"engines": {"local": LocalSettings()}, "default_engine": "local"})
    parsed = parse_manifest(yaml.safe_dump(manifest), here).manifest
    with world.transaction() as session:
        session.merge(Member(project_id=PROJECT, user_id=USER, role="editor"))
        session.flush()
        row = ScheduleRow(
            id=new_id("sch"),
            user_id=USER,
            name=parsed.name,
            manifest=parsed.model_dump(mode="json", exclude_none=True),
            model=parsed.on.name if parsed.on else None,
            stage=parsed.on.version if parsed.on else None,
        )
        Scope(session, PROJECT).add(row)
        schedules.activate(session, row)
    return row.id


def come(world: World, schedule_id: str, times: int = 1) -> list[datetime]:
    """Let the last ``times`` times of a schedule come; returns them, the oldest first."""
    with world.transaction() as session:
        row = session.get_one(ScheduleRow, schedule_id)
        hours = range(times, 0, -1)
        assert row.due_at is not None
        passed = [row.due_at - timedelta(hours=number) for number in hours]
        row.due_at = row.next_step_at = passed[0]
    return passed


def an_hour_later(world: World) -> None:
    """Make all starts old, so that the same time may come again."""
    with world.transaction() as session:
        session.execute(update(Start).values(due_at=func.to_timestamp(Start.id)))


def starts(world: World, schedule_id: str) -> list[Start]:
    with world.transaction() as session:
        return list(session.scalars(select(Start).where(Start.schedule_id == schedule_id).order_by(Start.id)))


def told(world: World, schedule_id: str) -> list[tuple[str, str]]:
    return [(start.state, start.reason) for start in starts(world, schedule_id)]


def row_of(world: World, schedule_id: str) -> ScheduleRow:
    with world.transaction() as session:
        return session.get_one(ScheduleRow, schedule_id)


def jobs_of(world: World, schedule_id: str) -> list[Job]:
    """All jobs that are marked as the schedule's, whether a start names them or not."""
    with world.transaction() as session:
        mine = select(Job).where(Job.labels["schedule"].astext == schedule_id)
        return list(session.scalars(mine.order_by(Job.created_at, Job.id)))


def finish(world: World, job_id: str | None) -> None:
    with world.transaction() as session:
        ended = update(Job).where(Job.id == job_id)
        session.execute(ended.values(state="COMPLETED", ended_at=func.now(), next_step_at=None))


def promote(world: World, number: int, stage: str = "production") -> bool:
    """The model ``digits`` has a version of this number, and the stage comes to it."""
    with world.transaction() as session:
        scope = Scope(session, PROJECT)
        model = scope.find(Model, Model.name == "digits", lock=True)
        if model is None:
            model = scope.add(Model(id=new_id("mdl"), name="digits"))
            session.flush()
        if scope.find(ModelVersion, ModelVersion.model_id == model.id, ModelVersion.number == number) is None:
            version = {"job_id": f"job-{number}", "user_id": USER, "prefix": f"r/{number}", "lineage": {}}
            scope.add(ModelVersion(id=f"mv-{number}", model_id=model.id, number=number, **version))
            session.flush()
        return registry.promote(scope, model, stage, number, USER)


# --- times ---


def test_a_time_that_has_come_starts_one_job(world: World, context: Context, settings: Settings) -> None:
    made = create(world, settings, schedule=hourly(), labels={"team": "vision"})
    Schedules(context).run_due()
    assert starts(world, made) == [], "its time has not come"
    (due,) = come(world, made)
    Schedules(context).run_due()
    Schedules(context).run_due()
    (start,) = starts(world, made)
    assert (start.trigger, start.state, start.due_at, start.reason) == ("time", "STARTED", due, "")
    (job,) = jobs_of(world, made)
    assert (job.id, job.user_id, job.labels) == (start.job_id, USER, {"schedule": made, "team": "vision"})
    assert not job.manifest.keys() & {"schedule", "on"}
    at = due.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert job.manifest["trigger"] == {"WEFT_SCHEDULE": made, "WEFT_TRIGGER": "time", "WEFT_DUE_AT": at}
    assert world.events(job.id, "schedule") == [f"started by the schedule nightly ({made}) at {at}"]
    row = row_of(world, made)
    assert row.due_at == row.next_step_at == due + timedelta(hours=1)


def test_after_a_downtime_only_the_last_time_starts_a_job(world: World, context: Context, settings: Settings) -> None:
    made = create(world, settings, schedule=hourly())
    passed = come(world, made, times=30)
    Schedules(context).run_due()
    (start,) = starts(world, made)
    assert start.due_at == passed[-1]
    assert start.reason == f"the times from {passed[0].astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} on were missed"
    assert len(jobs_of(world, made)) == 1
    assert row_of(world, made).due_at == passed[-1] + timedelta(hours=1)


def test_a_time_is_skipped_while_an_earlier_job_has_not_ended(
    world: World, context: Context, settings: Settings
) -> None:
    made = create(world, settings, schedule=hourly())
    for _ in range(2):
        come(world, made)
        an_hour_later(world)
        Schedules(context).run_due()
    first, _ = starts(world, made)
    assert told(world, made) == [("STARTED", ""), ("SKIPPED", f"{first.job_id} had not ended")]
    finish(world, first.job_id)
    an_hour_later(world)
    come(world, made)
    Schedules(context).run_due()
    assert [start.state for start in starts(world, made)] == ["STARTED", "SKIPPED", "STARTED"]


def test_with_queue_one_job_waits_for_the_earlier_one(world: World, context: Context, settings: Settings) -> None:
    made = create(world, settings, schedule={"cron": hourly(), "overlap": "queue"})
    for _ in range(3):
        come(world, made)
        an_hour_later(world)
        Schedules(context).run_due()
    first, second, _ = starts(world, made)
    skipped = f"{first.job_id} had not ended, and {second.job_id} waits already"
    assert told(world, made) == [("STARTED", ""), ("STARTED", ""), ("SKIPPED", skipped)]
    with world.transaction() as session:
        waits = session.execute(select(Predecessor.job_id, Predecessor.predecessor_id, Predecessor.ending)).all()
    assert waits == [(second.job_id, first.job_id, "ended")]
    assert world.job(second.job_id or "").reason == f"waiting for {first.job_id} to end"


@pytest.mark.parametrize("change", ["disabled", "viewer"])
def test_a_schedule_whose_owner_has_lost_the_right_pauses(
    world: World, context: Context, settings: Settings, change: str
) -> None:
    made = create(world, settings, schedule=hourly(), on="digits@production")
    promote(world, 1)
    come(world, made)
    with world.transaction() as session:
        if change == "disabled":
            session.execute(update(User).where(User.id == USER).values(disabled_at=func.now()))
        else:
            session.execute(update(Member).where(Member.user_id == USER).values(role="viewer"))
    Schedules(context).run_due()
    row, reason = row_of(world, made), "its owner may not submit jobs to this project any more"
    assert (row.state, row.reason, row.due_at, row.next_step_at) == ("PAUSED", reason, None, None)
    assert told(world, made) == [("SKIPPED", f"the schedule was paused: {reason}")]
    assert jobs_of(world, made) == []


def test_the_cap_of_the_owners_role_holds_at_each_start(world: World, context: Context, settings: Settings) -> None:
    made = create(world, settings, schedule=hourly(), priority=80)
    with world.transaction() as session:
        session.execute(update(Project).where(Project.id == PROJECT).values(caps={"editor": {"priority": 40}}))
    come(world, made)
    Schedules(context).run_due()
    (job,) = jobs_of(world, made)
    assert (job.priority, job.manifest["priority"]) == (40, 40)


def test_a_schedule_in_trouble_does_not_hold_up_another(
    world: World, context: Context, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, healthy = create(world, settings, schedule=hourly()), create(world, settings, schedule=hourly())

    def advance(session: Session, *given: Any) -> list[str]:
        if given[-1].id == broken:
            raise RuntimeError("trouble")
        return schedules.advance(session, *given)

    for made in (broken, healthy):
        come(world, made)
    monkeypatch.setattr(scheduling, "advance", advance)
    Schedules(context).run_due()
    assert (len(starts(world, broken)), len(starts(world, healthy))) == (0, 1)
    with world.transaction() as session:
        later = select(ScheduleRow.next_step_at > func.now()).where(ScheduleRow.id == broken)
        assert session.scalars(later).one()
    assert row_of(world, broken).due_at is not None, "its time is not lost"


def test_old_starts_are_forgotten(
    world: World, context: Context, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "KEPT", 3)
    made = create(world, settings, on="digits@production")
    for number in range(1, 6):
        promote(world, number)
    assert len(starts(world, made)) == 5, "a promotion whose job has not been made is never forgotten"
    Schedules(context).run_due()
    assert [start.version for start in starts(world, made)] == [3, 4, 5]
    assert len(jobs_of(world, made)) == 5


# --- promotions ---


def test_each_promotion_starts_one_job_with_its_version(world: World, context: Context, settings: Settings) -> None:
    store = {"id": "in", "model": "digits@production"}
    made = create(world, settings, on="digits@production", data_stores=[store])
    other = create(world, settings, on="digits@staging")
    assert promote(world, 1)
    assert not promote(world, 1), "the stage is there already: no promotion"
    promote(world, 2)
    Schedules(context).run_due()
    promote(world, 1)
    Schedules(context).run_due()
    assert [(start.version, start.state, start.user_id) for start in starts(world, made)] == [
        (1, "STARTED", USER),
        (2, "STARTED", USER),
        (1, "STARTED", USER),
    ]
    jobs = [world.job(start.job_id or "") for start in starts(world, made)]
    assert [job.pretrained_id for job in jobs] == ["mv-1", "mv-2", "mv-1"], "each of its own, not the newest"
    assert [job.manifest["trigger"]["WEFT_PROMOTED_VERSION"] for job in jobs] == ["1", "2", "1"]
    assert jobs[1].reason == f"waiting for {jobs[0].id} to end"
    assert jobs[2].reason == f"waiting for {jobs[1].id} to end"
    assert starts(world, other) == []


def test_a_promotion_that_is_rolled_back_starts_nothing(world: World, context: Context, settings: Settings) -> None:
    made = create(world, settings, on="digits@production")
    promote(world, 1)
    Schedules(context).run_due()
    with world.transaction() as session:
        scope = Scope(session, PROJECT)
        model = scope.find(Model, Model.name == "digits", lock=True)
        assert model is not None
        registry.promote(scope, model, "production", None, USER)
        registry.promote(scope, model, "production", 1, USER)
        session.flush()
        session.rollback()
    Schedules(context).run_due()
    assert len(starts(world, made)) == 1


def test_a_version_that_is_gone_refuses_the_start(world: World, context: Context, settings: Settings) -> None:
    store = {"id": "in", "model": "digits@1"}
    made = create(world, settings, schedule=hourly(), data_stores=[store])
    come(world, made)
    Schedules(context).run_due()
    assert told(world, made) == [("REFUSED", "no model 'digits' in this project")]
    assert jobs_of(world, made) == []
    assert row_of(world, made).state == "ACTIVE", "the next time may be luckier"


def test_while_it_is_paused_nothing_starts(world: World, context: Context, settings: Settings) -> None:
    made = create(world, settings, schedule=hourly(), on="digits@production")
    promote(world, 1)
    with world.transaction() as session:
        schedules.pause(session, session.get_one(ScheduleRow, made), "paused by ann")
    promote(world, 2)
    Schedules(context).run_due()
    assert told(world, made) == [("SKIPPED", "the schedule was paused: paused by ann")]
    with world.transaction() as session:
        schedules.activate(session, session.get_one(ScheduleRow, made))
    Schedules(context).run_due()
    assert len(starts(world, made)) == 1
    promote(world, 1)
    Schedules(context).run_due()
    assert told(world, made)[1:] == [("STARTED", "")]


# --- exactly once ---


class _Dying:
    """Wakes nobody: the process dies after the commit."""

    def job(self, job_id: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def move_and_die(settings: Settings, schedule_id: str, moment: str) -> None:
    """Move a schedule on in this process, which is killed at ``moment``."""
    context = make_context(settings, "inst-test", {"local": FakeEngine()}, connections=4)

    def die(*given: Any, **more: Any) -> Any:
        insert_job(*given, **more)
        given[0].session.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    if moment == "committed":
        context = replace(context, wake=cast(Wake, _Dying()))
    else:
        vars(schedules).update(insert_job=die)
    Schedules(context).move(schedule_id)


@pytest.mark.parametrize("moment", ["job inserted", "committed"])
def test_a_worker_that_is_killed_loses_and_doubles_no_start(
    world: World, context: Context, settings: Settings, moment: str
) -> None:
    here = settings.model_copy(update={"engines": {"local": LocalSettings()}, "default_engine": "local"})
    made = create(world, settings, schedule=hourly(), on="digits@production")
    promote(world, 1)
    come(world, made)
    killed = FORKS.Process(target=move_and_die, args=(here, made, moment))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert len(jobs_of(world, made)) == (1 if moment == "committed" else 0)
    Schedules(context).run_due()
    assert [(start.trigger, start.state) for start in starts(world, made)] == [
        ("promotion", "STARTED"),
        ("time", "SKIPPED"),
    ]
    assert [job.id for job in jobs_of(world, made)] == [starts(world, made)[0].job_id]


@budget(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(st.sampled_from(["time", "promotion", "finish"]), min_size=1, max_size=8))
def test_racing_workers_start_each_time_and_each_promotion_once(
    world: World, context: Context, settings: Settings, acts: list[str]
) -> None:
    made = create(world, settings, schedule={"cron": hourly(), "overlap": "queue"}, on="digits@production")
    times = promotions = 0

    def race(before: Callable[[], object]) -> None:
        with ThreadPoolExecutor(3) as pool:
            racing = [pool.submit(Schedules(context).run_due) for _ in range(2)]
            racing.insert(1, pool.submit(before))  # type: ignore[arg-type]
            for each in racing:
                each.result()
        Schedules(context).run_due()

    promotions += promote(world, 9)  # so that a time has a version, too
    numbers = cycle((1, 2))
    for act in acts:
        if act == "time":
            times += 1
            an_hour_later(world)
            race(partial(come, world, made))
        elif act == "promotion":
            promotions += 1
            race(partial(promote, world, next(numbers)))
        else:
            for job in jobs_of(world, made):
                finish(world, job.id)
            race(lambda: None)
    found = starts(world, made)
    assert len([start for start in found if start.trigger == "time"]) == times
    assert len([start for start in found if start.trigger == "promotion"]) == promotions
    assert all(start.state == "STARTED" for start in found if start.trigger == "promotion")
    started = [start.job_id for start in found if start.state == "STARTED"]
    assert None not in started
    assert sorted(job.id for job in jobs_of(world, made)) == sorted(job_id or "" for job_id in started)
    with world.transaction() as session:
        schedules.pause(session, session.get_one(ScheduleRow, made), "the next example has its own")


# --- cron ---


@given(
    minute=st.sampled_from(["*", "*/7", "30", "0,45"]),
    hour=st.sampled_from(["*", "2", "3", "1-3", "*/5"]),
    day=st.sampled_from(["*", "*", "L", "29", "1-7"]),
    weekday=st.sampled_from(["*", "*", "SUN", "1-5"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    since=st.datetimes(datetime(2026, 3, 1), datetime(2026, 11, 30)),
    hours=st.integers(0, 50),
)
# Nights that move the clock by half an hour, and one that has the hour of the schedule twice.
@example("*", "*/5", "*", "*", "Australia/Lord_Howe", datetime(2026, 4, 3, 3, 59), 35)
@example("30", "*", "*", "*", "Australia/Lord_Howe", datetime(2026, 4, 4, 13, 59), 1)
@example("*", "1-3", "*", "*", "Australia/Lord_Howe", datetime(2026, 10, 3, 14, 30), 1)
@example("0,45", "2", "*", "*", "Europe/Berlin", datetime(2026, 10, 24, 23, 59), 1)
def test_the_last_time_is_the_one_that_walking_through_all_times_finds(
    minute: str, hour: str, day: str, weekday: str, zone: str, since: datetime, hours: int
) -> None:
    cron = f"{minute} {hour} {day} * {weekday}"
    due = next_time(cron, zone, since.replace(tzinfo=UTC))
    assert due is not None
    until, walked = due + timedelta(hours=hours), due
    while (following := next_time(cron, zone, walked)) is not None and following <= until:
        assert following > walked
        walked = following
    assert last_time(cron, zone, due, until) == walked
