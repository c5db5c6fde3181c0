"""Metrics are folded beside the calls that bring them: nobody waits for a fold, and no point is lost or doubled."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import delete, func, select, text, update
from sqlalchemy.orm import Session
from tests.api.conftest import Api, Attempted, Person, until
from tests.api.test_metrics import chart, record, send, series

from weft_api.metrics import fold as fold_module
from weft_api.metrics.unhurried import unhurried
from weft_core.store.models import Job, MetricBatch, MetricBlock, MetricCursor, MetricRecords, MetricSeries

CALL = 1500
"""Records of a call. Two calls make a fold due."""
_WAITS_FOR_ME = text(
    "select pg_backend_pid() = any(pg_blocking_pids(pid)) from pg_stat_activity where datname = current_database()"
)
_FOLDS = text("select count(*) from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock'")


@pytest.fixture
def attempt(api: Api, ann: Person) -> Attempted:
    attempt = api.attempt(ann.submit()["id"])
    attempt.agents[0].start()
    return attempt


def call(attempt: Attempted, number: int) -> None:
    """The records of one call: their values are their steps."""
    send(attempt.agents[0], number, *(record(step, loss=step) for step in range(CALL * number, CALL * (number + 1))))


def is_folded(api: Api, attempt: Attempted) -> bool:
    there = select(MetricBatch.n).where(MetricBatch.job_id == attempt.job_id).exists()
    state = select(there, MetricCursor.waiting).where(MetricCursor.job_id == attempt.job_id)
    with api.context.database.transaction() as session:
        waiting, counted = session.execute(state).one()
    assert waiting == bool(counted)
    return not waiting


def is_exact(ann: Person, attempt: Attempted, calls: int) -> None:
    """All points of so many calls are there once."""
    (loss,) = series(ann, attempt.job_id)
    assert (loss["points"], loss["min"], loss["max"]) == (CALL * calls, 0, CALL * calls - 1)
    (shown,) = chart(ann, attempt.job_id)
    assert sum(shown["count"]) == CALL * calls
    exported = csv.DictReader(io.StringIO(ann.http.get(f"/api/v1/jobs/{attempt.job_id}/metrics/export").text))
    assert [float(row["value"]) for row in exported] == list(range(CALL * calls))
    page = ann.http.get(f"/api/v1/jobs/{attempt.job_id}/metrics/records?from={CALL * calls}").json()
    assert (page["total"], [row["values"] for row in page["records"]]) == (CALL * calls, [{"loss": CALL * calls - 1}])


@contextmanager
def a_fold_that_hangs(api: Api, attempt: Attempted) -> Iterator[Session]:
    """The session of the transaction that the fold waits for. The third and the fourth call have been sent."""
    call(attempt, 0)
    call(attempt, 1)
    until(lambda: is_folded(api, attempt))
    with api.context.database.transaction() as holder:
        holder.execute(select(MetricSeries.id).where(MetricSeries.job_id == attempt.job_id).with_for_update())
        call(attempt, 2)
        call(attempt, 3)
        until(lambda: any(holder.scalars(_WAITS_FOR_ME)))
        yield holder


def test_records_are_taken_in_and_read_while_a_fold_is_under_way(api: Api, ann: Person, attempt: Attempted) -> None:
    with a_fold_that_hangs(api, attempt):
        for number in range(4, 7):
            call(attempt, number)
        is_exact(ann, attempt, 7)
    is_exact(ann, attempt, 7)
    until(lambda: is_waiting(api, attempt) == 3 * CALL)  # what came during the fold waits for the next
    call(attempt, 7)
    until(lambda: is_folded(api, attempt))
    is_exact(ann, attempt, 8)
    with api.context.database.transaction() as session:
        of_series = select(MetricSeries.id).where(MetricSeries.job_id == attempt.job_id)
        blocks = session.scalars(select(MetricBlock.points).where(MetricBlock.series_id == of_series.scalar_subquery()))
        assert sum(blocks) == 8 * CALL


def is_waiting(api: Api, attempt: Attempted) -> int:
    with api.context.database.transaction() as session:
        return session.scalar(select(MetricCursor.waiting).where(MetricCursor.job_id == attempt.job_id)) or 0


def test_callers_fold_if_the_thread_is_too_slow(
    api: Api, ann: Person, attempt: Attempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = api.attempt(ann.submit()["id"])
    other.agents[0].start()
    monkeypatch.setattr(fold_module, "_OVERDUE", 2)
    with a_fold_that_hangs(api, attempt):
        call(other, 0)
        call(other, 1)
        assert is_waiting(api, other) == 2 * CALL, "due, and the thread has another job's in hand"
        call(other, 2)
        assert is_folded(api, other), "overdue"
    is_exact(ann, other, 3)
    is_exact(ann, attempt, 4)


def test_a_job_that_is_deleted_meanwhile_waits_for_the_fold(api: Api, attempt: Attempted) -> None:
    mine = select(Job.id).where(Job.id == attempt.job_id)
    with a_fold_that_hangs(api, attempt), api.context.database.transaction() as session:
        assert session.scalar(mine.with_for_update(skip_locked=True)) is None
        changed = mine.with_for_update(skip_locked=True, key_share=True)
        assert session.scalar(changed) == attempt.job_id, "its state may change"
    with api.context.database.transaction() as session:
        session.execute(delete(Job).where(Job.id == attempt.job_id))
        for table in (MetricCursor, MetricBatch, MetricRecords, MetricSeries):
            assert session.scalar(select(func.count()).where(table.job_id == attempt.job_id)) == 0


def test_an_api_of_an_earlier_release_may_fold_at_the_same_time(api: Api, ann: Person, attempt: Attempted) -> None:
    """It does not know the lock. The later of two folds of the same batches changes nothing."""
    with a_fold_that_hangs(api, attempt) as earlier:
        earlier.execute(delete(MetricBatch).where(MetricBatch.job_id == attempt.job_id))
        nothing = {"waiting": 0}
        earlier.execute(update(MetricCursor).where(MetricCursor.job_id == attempt.job_id).values(nothing))
    with api.context.database.transaction() as session:
        until(lambda: not session.scalar(_FOLDS))
    call(attempt, 4)
    with api.context.database.transaction() as session:
        cursor = session.get_one(MetricCursor, attempt.job_id)
        (loss,) = session.scalars(select(MetricSeries).where(MetricSeries.job_id == attempt.job_id))
        assert (cursor.waiting, loss.points) == (CALL, 2 * CALL)


def test_a_long_computation_rests_between_its_items(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    now = 0.0
    monkeypatch.setattr(time, "sleep", rests.append)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    for item in unhurried(range(100)):
        assert len(rests) == item // 5
        now += 2**-11  # about 0.5 ms
    assert len(rests) == 20


def test_values_that_are_not_finite_are_folded(api: Api, ann: Person, attempt: Attempted) -> None:
    def folded(first: int, **values: Any) -> dict[str, tuple[Any, ...]]:
        told = [record(step, z=step, **values) for step in range(first, first + CALL)]
        send(attempt.agents[0], first // CALL, *told)
        until(lambda: is_folded(api, attempt))
        found = series(ann, attempt.job_id)
        return {metric["name"]: tuple(metric[key] for key in ("points", "last", "min", "max")) for metric in found}

    nothing = (CALL, None, None, None)
    numbers = (CALL, CALL - 1, 0, CALL - 1)
    assert folded(0, x="nan", y="inf") == {"x": nothing, "y": nothing, "z": numbers}
    whole = (2 * CALL, 2 * CALL - 1, 0, 2 * CALL - 1)
    expected = {"x": (2 * CALL, 1.5, 1.5, 1.5), "y": (2 * CALL, None, None, None), "z": whole}
    assert folded(CALL, x=1.5, y="-inf") == expected
