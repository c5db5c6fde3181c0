"""The data of ended jobs that workers remove and keep, on a real database and a real store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import func, select, text, update
from tests.workers.world import PROJECT, World

from weft_core.ids import new_id
from weft_core.objects import Objects, StoreError, checkpoints_prefix, code_key, results_prefix
from weft_core.settings import AgeSettings, KeepSettings, RetentionSettings, S3Settings
from weft_core.store.backups import hold_deletions
from weft_core.store.models import (
    Attempt,
    CodeBundle,
    Delivery,
    Event,
    Job,
    JobMetric,
    LogCursor,
    LogFrame,
    MetricBatch,
    MetricBlock,
    MetricCursor,
    MetricRecords,
    MetricSeries,
    Project,
)
from weft_core.store.registry import register
from weft_workers.archiving import Archiver
from weft_workers.context import Context
from weft_workers.retention import Retention


def keeps(world: World, **kinds: dict[str, Any]) -> None:
    """The project keeps this, and a worker looks at once."""
    with world.transaction() as session:
        project = session.get_one(Project, PROJECT)
        project.retention = {kind: {"days": None, "bytes": None, **kept} for kind, kept in kinds.items()}
    due(world)


def due(world: World) -> None:
    with world.transaction() as session:
        session.execute(update(Project).values(retention_due=func.now()))


def remove(world: World, context: Context | None = None) -> None:
    due(world)
    Retention(context or world.context).remove_due()


def ended(world: World, days: float, log: str = "", **changes: Any) -> str:
    """A job that was completed so many days ago, with its log in the store."""
    job = world.running(**changes)
    if log:
        world.write_log(job, 0, log)
        with world.transaction() as session:
            session.execute(
                update(LogCursor)
                .where(LogCursor.job_id == job)
                .values(next_line=log.count("\n"), bytes=len(log.encode()))
            )
    world.exit(job)
    world.step(job, times=2)
    assert world.job(job).state == "COMPLETED"
    world.pass_time(60)
    Archiver(world.context).archive_due()
    with world.transaction() as session:
        session.execute(update(Job).where(Job.id == job).values(ended_at=func.now() - timedelta(days=days)))
    return job


def log_of(world: World, job: str) -> tuple[int, int]:
    """Its frames, and the objects of its log."""
    with world.transaction() as session:
        frames = session.scalar(select(func.count()).select_from(LogFrame).where(LogFrame.job_id == job)) or 0
    return frames, len(list(world.context.objects.objects(f"jobs/{PROJECT}/{job}/logs/")))


def test_logs_go_by_their_age(world: World) -> None:
    old, young = ended(world, 31, "one\ntwo\n"), ended(world, 29, "three\n")
    keeps(world, logs={"days": 30})
    remove(world)
    assert (log_of(world, old), log_of(world, young)) == ((0, 0), (1, 1))
    told = world.job(old).removed
    assert told is not None
    assert (told["logs"]["lines"], told["logs"]["bytes"]) == (2, 8)
    assert world.events(old, "removed") == ["the log (2 lines, 8 bytes) was removed: kept for 30 days"]
    assert world.job(young).removed is None
    with world.transaction() as session:
        removed = session.get_one(Project, PROJECT).removed["logs"]
    assert (removed["number"], removed["bytes"]) == (1, 8)
    # Once is enough.
    remove(world)
    assert len(world.events(old, "removed")) == 1


def test_logs_go_by_their_size_the_oldest_first(world: World) -> None:
    jobs = [ended(world, days, "x" * 99 + "\n") for days in (9, 8, 7, 0.5)]
    keeps(world, logs={"bytes": 250})
    remove(world)
    assert [log_of(world, job)[0] for job in jobs] == [0, 0, 1, 1]
    assert world.events(jobs[0], "removed") == ["the log (1 line, 100 bytes) was removed: 250 bytes are kept"]
    # In the first day, nothing goes, as late lines may come.
    keeps(world, logs={"bytes": 0})
    remove(world)
    assert [log_of(world, job)[0] for job in jobs] == [0, 0, 0, 1]


def test_a_running_job_keeps_all_and_a_resumed_one_its_new_lines(world: World) -> None:
    running = world.running()
    world.write_log(running, 0, "one\n")
    old = ended(world, 31, "one\ntwo\n")
    keeps(world, logs={"days": 30}, events={"days": 30})
    remove(world)
    assert world.job(running).removed is None
    with world.transaction() as session:
        assert session.get_one(LogCursor, old).archived == 2, "the next line has number 2"
        assert session.get_one(LogCursor, old).bytes == 0, "it counts no more against the limit of the job"
        job = session.get_one(Job, old)
        job.state = "HALTED"
    world.resume(old)
    remove(world)
    assert world.job(old).state == "QUEUED"
    assert any("resumed" in message for message in world.events(old)), "the events of a live job stay"


def test_metrics_go_but_for_what_lists_show(world: World) -> None:
    job = ended(world, 31)
    with world.transaction() as session:
        session.add(MetricCursor(job_id=job, project_id=PROJECT, points=3, system_points=1, bytes=70, next_record=4))
        common = {"job_id": job, "project_id": PROJECT}
        session.add(MetricBatch(**common, n=0, attempt=1, rank=0, first_record=1, records=1, system=0, body=b"x"))
        session.add(MetricRecords(**common, first_record=1, records=1, last_time=0, body=b"x"))
        series = MetricSeries(
            **common, attempt=1, rank=0, kind="user", group="train", name="loss", points=2, first_step=0, last_step=1,
            first_time=0, last_time=1, last=0.5,
        )  # fmt: skip
        session.add(series)
        session.flush()
        session.add(
            MetricBlock(
                series_id=series.id, n=0, project_id=PROJECT, points=2, first_step=0, last_step=1, first_time=0,
                last_time=1, steps_rise=True, times_rise=True, summary=b"", body=b"",
            )
        )  # fmt: skip
        session.add(JobMetric(**common, name="train/loss", rank=0, last=0.5))
    keeps(world, metrics={"days": 30})
    remove(world)
    with world.transaction() as session:
        for model in (MetricBatch, MetricRecords, MetricSeries, MetricBlock):
            assert session.scalar(select(func.count()).select_from(model)) == 0
        assert session.get_one(JobMetric, (job, "train/loss")).last == 0.5
        cursor = session.get_one(MetricCursor, job)
        assert (cursor.points, cursor.bytes, cursor.next_record) == (0, 0, 4)
    assert world.events(job, "removed") == ["the metrics (4 values) were removed: kept for 30 days"]


def test_results_stay_where_something_stands_on_them(world: World) -> None:
    put, head = world.context.objects.put, world.context.objects.head
    alone, version, source, away = (ended(world, 31) for _ in range(4))
    keys = {
        job: (results_prefix(PROJECT, job) + "model.pt", checkpoints_prefix(PROJECT, job) + "generations/1-1.json")
        for job in (alone, version, source, away)
    }
    for result, checkpoint in keys.values():
        put(result, b"weights")
        put(checkpoint, b"{}")
    begun = world.submit()
    with world.transaction() as session:
        register(session, session.get_one(Job, version), "digits")
        session.get_one(Job, begun).checkpoint_of = {"job": source, "generation": "1-1"}
        session.get_one(Job, away).manifest = {
            **session.get_one(Job, away).manifest,
            "data_stores": [{"id": "s3", "training_results": {"container": "results"}}],
        }
    keeps(world, results={"days": 30})
    remove(world)
    there = {job: tuple(head(key) is not None for key in keys[job]) for job in keys}
    assert there == {alone: (False, False), version: (True, True), source: (True, True), away: (True, True)}
    assert world.events(alone, "removed") == [
        "results and checkpoints (2 files, 9 bytes) were removed: kept for 30 days"
    ]
    # A day later all are looked at anew; the live job has ended by then.
    with world.transaction() as session:
        session.get_one(Job, begun).state = "HALTED"
        began = """jsonb_set(removed, '{results,began}', '"2026-01-01T00:00Z"')"""
        session.execute(text(f"update projects set removed = {began}"))
    remove(world)
    assert head(keys[source][0]) is None
    assert head(keys[version][0]) is not None


def test_results_go_by_their_size(world: World) -> None:
    jobs = [ended(world, days) for days in (9, 8)]
    for job in jobs:
        world.context.objects.put(results_prefix(PROJECT, job) + "model.pt", b"x" * 100)
    with world.transaction() as session:
        session.execute(update(Attempt).values(outputs={"files": 1, "bytes": 100, "sha256": "a"}))
    keeps(world, results={"bytes": 150})
    remove(world)
    left = [world.context.objects.head(results_prefix(PROJECT, job) + "model.pt") is not None for job in jobs]
    assert left == [False, True]


def test_events_go_but_for_those_that_are_to_be_sent(world: World) -> None:
    told, waiting = ended(world, 31), ended(world, 31)
    with world.transaction() as session:
        event = session.scalars(select(Event.id).where(Event.job_id == waiting).limit(1)).one()
        session.add(Delivery(id=new_id("dlv"), project_id=PROJECT, job_id=waiting, event_id=event, target=0))
    keeps(world, events={"days": 30})
    remove(world)
    (left,) = world.events(told)
    assert left.endswith("events were removed: kept for 30 days")
    assert len(world.events(waiting)) > 1


def test_code_goes_when_nothing_names_it(world: World) -> None:
    names = {name: name * 64 for name in ("a", "b", "c", "d")}  # unused, used, of a model, uploaded a moment ago
    job, model = ended(world, 31), ended(world, 31)
    with world.transaction() as session:
        for digest in names.values():
            session.add(CodeBundle(project_id=PROJECT, sha256=digest, size=10, files=1))
        session.flush()
        session.execute(update(CodeBundle).values(created_at=func.now() - timedelta(days=40)))
        session.get_one(Job, job).code_sha256 = names["b"]
        session.get_one(Job, model).code_sha256 = names["c"]
        session.flush()
        register(session, session.get_one(Job, model), "digits")
        session.flush()
        session.delete(session.get_one(Job, model))
    for digest in names.values():
        world.context.objects.put(code_key(PROJECT, digest), b"code")
    keeps(world, code={"days": 30})
    remove(world)
    with world.transaction() as session:
        # All objects are fresh here, and an upload may rely on a fresh object that it has found.
        assert len(session.scalars(select(CodeBundle)).all()) == 4

    world.context.objects.delete([code_key(PROJECT, names[name]) for name in "abc"])
    remove(world)
    with world.transaction() as session:
        assert set(session.scalars(select(CodeBundle.sha256))) == {names[name] for name in "bcd"}
        assert session.get_one(Project, PROJECT).removed["code"]["number"] == 1


@contextmanager
def _backup(context: Context) -> Iterator[None]:
    with hold_deletions(context.settings.database_url.get_secret_value().replace("+psycopg", "")):
        yield


def test_nothing_goes_during_a_backup(world: World, context: Context) -> None:
    old = ended(world, 31, "one\n")
    keeps(world, logs={"days": 30})
    with _backup(context):
        remove(world)
        assert log_of(world, old) == (1, 1)
    remove(world)
    assert log_of(world, old) == (0, 0)


def test_while_the_store_is_away_nothing_is_said_to_be_gone(world: World, context: Context) -> None:
    old = ended(world, 31, "one\n")
    keeps(world, logs={"days": 30})
    nowhere = S3Settings(endpoint="http://127.0.0.1:9", access_key="k", secret_key=SecretStr("s"))
    with pytest.raises(StoreError):
        remove(world, replace(context, objects=Objects(nowhere)))
    assert (log_of(world, old), world.job(old).removed) == ((1, 1), None)
    remove(world)
    assert log_of(world, old) == (0, 0)


def test_what_the_settings_say_holds_where_a_project_says_nothing(world: World, context: Context) -> None:
    old = ended(world, 31, "one\n")
    with world.transaction() as session:
        session.add(Project(id="prj-2", name="other", retention={"logs": {"days": None, "bytes": None}}))
    other = ended(world, 31, "two\n", project="prj-2")
    settings = context.settings.model_copy(
        update={"retention": RetentionSettings(logs=KeepSettings(days=30), code=AgeSettings(days=1))}
    )
    remove(world, replace(context, settings=settings))
    assert world.job(old).removed
    assert world.job(other).removed is None, "its own setting keeps all"
