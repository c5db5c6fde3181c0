"""A busy server asks learners for pauses between their reports: large gangs first, and few learners never."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from weft_api.learner import pace as pace_module
from weft_api.learner.pace import Pace


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    """Without the spread of pauses."""
    monkeypatch.setattr(pace_module, "_WINDOW", 0.0)
    monkeypatch.setattr(pace_module, "_SPREAD", 0.0)
    return Pace()


def busy(pace: Pace, reports: int, learners: int) -> float:
    """The pause after so many reports were under way at once."""
    with ExitStack() as stack:
        for _ in range(reports):
            stack.enter_context(pace.report())
    return pace.pause(learners)


def test_a_large_gang_pauses_until_few_reports_are_under_way_at_a_time(pace: Pace) -> None:
    pauses = [busy(pace, 100, 1000) for _ in range(10)]
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < pauses[-1] == 8
    assert busy(pace, 100, 1) < 0.1, "each attempt may send as many reports as another"
    assert busy(pace, 25, 1000) == 8, "neither few nor many"
    assert [busy(pace, 2, 1000) for _ in range(50)][-1] == 0


def test_few_learners_never_pause_however_slow_the_server_is(pace: Pace) -> None:
    assert [busy(pace, 12, 12) for _ in range(50)] == [0] * 50


def test_many_small_jobs_pause_as_well(pace: Pace) -> None:
    assert [busy(pace, 500, 1) for _ in range(50)][-1] == 8


def test_learners_that_have_reported_together_do_not_do_so_again(pace: Pace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "_SPREAD", 0.25)
    assert [busy(pace, 1000, 1000) for _ in range(9)]
    pauses = sorted(pace.pause(1000) for _ in range(1000))
    assert 6 <= pauses[0] < 7
    assert 9 < pauses[-1] <= 10
    assert 7.5 < sum(pauses) / 1000 < 8.5
