"""Population based training, with values that hypothesis makes up."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from weft_core.manifest import Sweep
from weft_core.manifest.sweep_models import Rungs, SweepParameter, Value
from weft_core.sweeps.population import Ended, NobodyGoesOn, follow, may_begin
from weft_core.sweeps.search import propose

SPACE = {
    "any": SweepParameter(kind="values", values=["sgd", 1, True, 0.5]),
    "int": SweepParameter(kind="int", low=0, high=9, step=3),
    "int_log": SweepParameter(kind="int_log", low=1, high=64),
    "log": SweepParameter(kind="log", low=1e-4, high=1e-1),
    "only": SweepParameter(kind="values", values=[7]),
    "stepped": SweepParameter(kind="uniform", low=0.0, high=1.0, step=0.1),
    "uniform": SweepParameter(kind="uniform", low=-1.0, high=1.0),
}


def sweep_of(population: int = 8, seed: int = 0, goal: str = "max") -> Sweep:
    rungs = Rungs(parameter="epochs", max=9, every=3)
    trials = population * len(rungs.ends)
    sweep = Sweep(parameters=SPACE, metric="m", trials=trials, search="pbt", rungs=rungs, population=population)
    return sweep.model_copy(update={"seed": seed, "goal": goal})


def rung_of(sweep: Sweep, values: list[float | None], gone: frozenset[int] = frozenset()) -> list[Ended]:
    """The first rung, with these values; the checkpoints of ``gone`` are gone."""
    rows = enumerate(values)
    return [Ended(n, sweep.given(_first(n), 0), value, value is not None and n not in gone) for n, value in rows]


@cache
def _first(number: int) -> dict[str, Value]:
    return propose(sweep_of(), number, []).parameters


@st.composite
def rungs(draw: st.DrawFn) -> tuple[Sweep, list[Ended]]:
    population = draw(st.integers(4, 13))
    sweep = sweep_of(population, draw(st.integers(0, 5)), draw(st.sampled_from(["max", "min"])))
    value = st.none() | st.integers(-9, 9).map(float)
    values = draw(st.lists(value, min_size=population, max_size=population))
    return sweep, rung_of(sweep, values, draw(st.frozensets(st.integers(0, population - 1), max_size=3)))


@given(rungs())
@hypothesis_settings(max_examples=40, deadline=None)
def test_the_worst_quarter_goes_on_from_the_best_and_all_others_as_they_are(given_: tuple[Sweep, list[Ended]]) -> None:
    sweep, before = given_
    size = len(before)
    alive = [trial for trial in before if trial.lasts]
    if not alive:
        with pytest.raises(NobodyGoesOn, match="no trial of rung 1 has a value and a checkpoint"):
            follow(sweep, size, before)
        return
    sign = 1 if sweep.goal == "max" else -1
    order = sorted((t for t in before if t.value is not None), key=lambda t: (-sign * float(t.value or 0), t.number))
    failed = [trial for trial in before if trial.value is None]
    best, worst = (order + failed)[: size // 4], (order + failed)[-(size // 4) :]
    for trial in before:
        made = follow(sweep, size + trial.number, before)
        assert made == follow(sweep, size + trial.number, before[::-1]), "nothing but the rows decides"
        assert made.parent is not None
        source = before[made.parent]
        assert source.lasts
        assert made.parameters.keys() == SPACE.keys()
        for name, value in made.parameters.items():
            assert SPACE[name].refusal(value) is None, (name, value)
        if trial in alive and trial not in worst:
            assert (source, made.parameters) == (trial, {name: trial.parameters[name] for name in SPACE})
        elif any(good.lasts for good in best):
            assert source in best
        else:
            assert source == next(good for good in order if good.lasts)


def test_each_parameter_moves_to_a_neighbour_or_anywhere() -> None:
    old = {"any": 1, "int": 3, "int_log": 2, "log": 1e-2, "only": 7, "stepped": 0.5, "uniform": 0.5}
    seen: dict[str, list[object]] = {name: [] for name in SPACE}
    for seed in range(40):
        sweep = sweep_of(4, seed)
        before = [Ended(n, {**old, "epochs": 3}, float(n), True) for n in range(4)]
        made = follow(sweep, 4, before)  # trial 0 is the worst, and trial 3 the best
        assert made.parent == 3
        for name, value in made.parameters.items():
            seen[name].append(value)
    beside: dict[str, list[object]] = {
        "any": ["sgd", True],
        "int": [0, 6],
        "int_log": [1, 3],
        "log": [0.008, 0.012],
        "only": [7],
    }
    beside |= {"stepped": [0.4, 0.6], "uniform": [0.4, 0.6]}
    for name, neighbours in beside.items():
        near = [value for value in seen[name] if any(value == n and type(value) is type(n) for n in neighbours)]
        assert len(near) >= 20, (name, seen[name])
        assert len(set(map(repr, near))) == len(neighbours), "up and down"
    assert len({repr(value) for value in seen["log"]}) > 5, "now and then it is any value"


def test_a_rung_waits_for_all_trials_of_the_one_before() -> None:
    sweep = sweep_of(4)
    assert [may_begin(sweep, 3, 0), may_begin(sweep, 4, 3), may_begin(sweep, 4, 4), may_begin(sweep, 5, 4)] == [
        True,
        False,
        True,
        True,
    ]
    assert may_begin(sweep.model_copy(update={"population": None, "search": "random"}), 4, 0)
