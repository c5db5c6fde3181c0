"""A busy server asks learners for pauses between their reports: large gangs first, and few learners never."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import count, pairwise
from uuid import uuid4

import pytest

from weft_api.learner import pace as pace_module
from weft_api.learner.pace import Pace


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Pace:
    """Of a process that uses no processor time."""
    monkeypatch.setattr(pace_module, "_WINDOW", 1e-9)
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    return Pace()


@pytest.fixture
def pace(idle: Pace, monkeypatch: pytest.MonkeyPatch) -> Pace:
    """Of a process that uses more than a core, however short the window is."""
    monkeypatch.setattr(time, "process_time", count(step=10**9).__next__)
    return Pace()


def busy(pace: Pace, reports: int, learners: int) -> float:
    """The average pause of a gang after so many reports were under way at once."""
    with ExitStack() as stack:
        for _ in range(reports):
            stack.enter_context(pace.report())
    name = uuid4().hex
    return sum(pace.pause(name, learners) for _ in range(learners)) / learners


def test_a_large_gang_pauses_until_few_reports_are_under_way_at_a_time(pace: Pace) -> None:
    pauses = [round(busy(pace, 100, 1000), 1) for _ in range(10)]
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < pauses[-1]
    assert pauses[-1] == 6, "from 2 s to 10 s: between two reports of a learner are 8 s"
    assert busy(pace, 100, 1) < 0.1, "each attempt may send as many reports as another"
    assert round(busy(pace, 25, 1000), 1) == 6, "neither few nor many"
    assert [busy(pace, 2, 1000) for _ in range(50)][-1] == 0


def test_few_learners_never_pause_however_slow_the_server_is(pace: Pace) -> None:
    assert [busy(pace, 12, 12) for _ in range(50)] == [0] * 50


def test_a_machine_that_keeps_up_asks_for_no_pauses(pace: Pace, idle: Pace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert busy(pace, 100, 1000) > 0
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    assert [busy(idle, 100, 1000) for _ in range(50)] == [0] * 50
    assert [busy(pace, 100, 1000) for _ in range(50)][-1] == 0, "any more"


def test_a_machine_that_is_short_of_processors_asks_for_pauses(idle: Pace) -> None:
    assert [busy(idle, 200, 1000) for _ in range(10)][-1] > 1


def test_many_small_jobs_pause_as_well(pace: Pace) -> None:
    assert 0 < [busy(pace, 500, 1) for _ in range(50)][-1] <= 8


def test_learners_that_have_reported_together_do_not_do_so_again(pace: Pace, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(10):
        busy(pace, 100, 1000)
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    due = [now] * 1000
    for _ in range(5000):  # the one that is due next reports
        now = min(due)
        with pace.report():
            due[due.index(now)] = now + pace.pause("attempt", 1000)
    gaps = [after - before for before, after in pairwise(sorted(due))]
    assert max(gaps) < 0.02, "they come one after the other"
    assert max(due) - now == pytest.approx(8, abs=0.5)
