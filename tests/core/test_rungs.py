"""Successive halving, with trials that end in any order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from weft_core.manifest import Sweep
from weft_core.manifest.sweep_models import Rungs, SweepParameter
from weft_core.sweeps.rungs import Bracket, Standing, bracket_of, brackets, promotion


@dataclass
class Tried:
    rung: int
    results: list[float] = field(default_factory=list)
    running: bool = True
    failed: bool = False


class Model:
    """A sweep in memory."""

    def __init__(self, sweep: Sweep, parallel: int, values: dict[tuple[int, int], float | None]) -> None:
        self.sweep, self.parallel, self.values = sweep, parallel, values
        assert sweep.rungs is not None
        self.rungs = sweep.rungs
        self.trials: list[Tried] = []
        self.begun: list[tuple[int, int]] = []
        """Trials and rungs, in the order of their beginning."""

    @property
    def running(self) -> list[int]:
        return [number for number, trial in enumerate(self.trials) if trial.running]

    def members(self, bracket: Bracket, rung: int) -> list[int]:
        numbers = range(bracket.numbers.start, min(bracket.numbers.stop, len(self.trials)))
        return [number for number in numbers if self.trials[number].rung >= rung]

    def standings(self, bracket: Bracket) -> list[Standing]:
        found = []
        for rung in range(bracket.first, len(self.rungs.ends)):
            here = self.members(bracket, rung)
            running = [number for number in here if self.trials[number].rung == rung and self.trials[number].running]
            at = rung - bracket.first
            valued = [number for number in here if len(self.trials[number].results) > at]
            valued.sort(key=lambda number: (-self.trials[number].results[at], number))
            best = valued[: (len(here) - len(running)) // self.rungs.reduction]
            waiting = next((number for number in best if self.waits(number, rung)), None)
            found.append(Standing(len(running), waiting))
        return found

    def place(self, number: int, rung: int) -> int:
        """Of a trial among those that have run the rung to its end, from 0."""
        bracket = bracket_of(self.sweep, number)
        results = [self.trials[other].results for other in self.members(bracket, rung)]
        at = rung - bracket.first
        mine = self.trials[number].results[at]
        return sum(len(other) > at and other[at] > mine for other in results)

    def waits(self, number: int, rung: int) -> bool:
        trial = self.trials[number]
        return trial.rung == rung and not trial.running and not trial.failed

    def next(self) -> int | None:
        for bracket in brackets(self.sweep):
            begun = len(self.trials) >= bracket.numbers.stop
            if (number := promotion(self.rungs, self.standings(bracket), begun)) is not None:
                return number
        return None

    def advance(self) -> None:
        while len(self.running) < self.parallel:
            if (number := self.next()) is not None:
                trial = self.trials[number]
                trial.rung, trial.running = trial.rung + 1, True
            elif len(self.trials) < self.sweep.trials:
                number = len(self.trials)
                self.trials.append(Tried(bracket_of(self.sweep, number).first))
            else:
                return
            self.begun.append((number, self.trials[number].rung))

    def end(self, number: int) -> None:
        trial = self.trials[number]
        value = self.values.get((number, trial.rung), 0.0)
        trial.running = False
        if value is None:
            trial.failed = True
        else:
            trial.results.append(value)


def sweep_of(search: str, rungs: Rungs, trials: int) -> Sweep:
    space = {"x": SweepParameter(kind="uniform", low=0.0, high=1.0)}
    return Sweep(parameters=space, metric="m", trials=trials, search=search, rungs=rungs)


@st.composite
def models(draw: st.DrawFn) -> Model:
    reduction = draw(st.integers(2, 4))
    count = draw(st.integers(2, 4))
    rungs = Rungs(parameter="epochs", max=reduction ** (count - 1), reduction=reduction, sync=draw(st.booleans()))
    trials = draw(st.integers(count, 40))
    sweep = sweep_of(draw(st.sampled_from(["asha", "hyperband"])), rungs, trials)
    places = st.tuples(st.integers(0, trials - 1), st.integers(0, count - 1))
    values = draw(st.dictionaries(places, st.none() | st.integers(0, 9).map(float), max_size=60))
    return Model(sweep, draw(st.integers(1, 8)), values)


@given(models(), st.data())
@hypothesis_settings(max_examples=60)
def test_good_trials_go_on_and_no_trial_is_lost_or_runs_twice(model: Model, data: st.DataObject) -> None:
    model.advance()
    while model.running:
        begun = len(model.begun)
        model.end(data.draw(st.sampled_from(model.running)))
        model.advance()
        for number, rung in model.begun[begun:]:
            bracket = bracket_of(model.sweep, number)
            if rung > bracket.first and not model.rungs.sync:
                ended = len(model.members(bracket, rung - 1))  # at most: some may still run there
                assert model.place(number, rung - 1) < ended / model.rungs.reduction, "among the best when it went on"
    assert len(model.trials) == model.sweep.trials
    assert max(Counter(model.begun).values()) == 1, "once at each rung"
    for bracket in brackets(model.sweep):
        for rung in range(bracket.first, len(model.rungs.ends) - 1):
            here, above = model.members(bracket, rung), model.members(bracket, rung + 1)
            valued = [number for number in here if len(model.trials[number].results) > rung - bracket.first]
            if model.rungs.sync:
                assert len(above) == min(len(here) // model.rungs.reduction, len(valued))
            best = sorted(valued, key=lambda n: (-model.trials[n].results[rung - bracket.first], n))
            assert set(best[: len(here) // model.rungs.reduction]) <= set(above), "the best have gone on"


@given(models(), st.data())
@hypothesis_settings(max_examples=30)
def test_with_sync_the_order_in_which_trials_end_decides_nothing(model: Model, data: st.DataObject) -> None:
    rungs = model.rungs.model_copy(update={"sync": True})
    sweep = model.sweep.model_copy(update={"rungs": rungs})
    ends = []
    for _ in range(2):
        again = Model(sweep, data.draw(st.integers(1, 8)), model.values)
        again.advance()
        while again.running:
            again.end(data.draw(st.sampled_from(again.running)))
            again.advance()
        ends.append(again.trials)
    assert ends[0] == ends[1]


@given(st.integers(2, 4), st.integers(2, 5), st.integers(0, 200))
def test_hyperbands_brackets_share_all_trials(reduction: int, count: int, more: int) -> None:
    rungs = Rungs(parameter="n", max=reduction ** (count - 1), reduction=reduction)
    sweep = sweep_of("hyperband", rungs, count + more)
    made = brackets(sweep)
    assert [bracket.first for bracket in made] == list(range(count))
    assert [number for bracket in made for number in bracket.numbers] == list(range(sweep.trials))
    assert all(bracket.numbers for bracket in made)


@pytest.mark.parametrize(
    ("rungs", "ends"),
    [
        (Rungs(parameter="n", max=27), [1, 3, 9, 27]),
        (Rungs(parameter="n", min=2, max=27), [3, 9, 27]),
        (Rungs(parameter="n", min=10, max=100, reduction=4), [25, 100]),
        (Rungs(parameter="n", max=10), [1, 3, 10]),
    ],
)
def test_rungs_are_counted_from_the_last(rungs: Rungs, ends: list[int]) -> None:
    assert rungs.ends == ends


def test_the_best_of_a_higher_rung_goes_on_first() -> None:
    rungs = Rungs(parameter="n", max=9)
    low, high, top = Standing(0, 4), Standing(1, 2), Standing(0, None)
    assert promotion(rungs, [low, high, top], begun=False) == 2
    sync = rungs.model_copy(update={"sync": True})
    assert promotion(sync, [low, high, top], begun=False) is None, "more trials come"
    assert promotion(sync, [low, high, top], begun=True) == 4
    settled = Standing(0, None)
    assert promotion(sync, [settled, high, top], begun=True) is None, "one is under way there"
    assert promotion(sync, [settled, Standing(0, 2), top], begun=True) == 2
