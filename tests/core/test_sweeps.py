"""The manifest's sweep, and the search: its proposals are in the space, and depend on nothing but its arguments."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import Any

import pytest
import yaml
from docs.generate.manifest_examples import installation
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from weft_core.manifest import Manifest, ManifestError, Sweep, manifest_text, parse_manifest
from weft_core.manifest.sweep_models import SweepParameter, fill, written
from weft_core.sweeps.importance import FEWEST, importance
from weft_core.sweeps.search import BEST, NEWEST, Known, is_good_enough, propose

HERE = installation()


def manifest(**sweep: Any) -> str:
    told = {"parameters": {"lr": {"log": [1e-4, 1e-1]}}, "metric": "loss", **sweep}
    framework = {"name": "pytorch", "command": "python train.py"}
    return yaml.safe_dump({"name": "search", "framework": framework, "sweep": told})


def parsed(**sweep: Any) -> Sweep:
    found = parse_manifest(manifest(**sweep), HERE).manifest.sweep
    assert found is not None
    return found


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestError) as refused:
        parse_manifest(text, HERE)
    return [f"{problem.path}: {problem.message}" for problem in refused.value.problems]


# --- the manifest ---


def test_a_sweep_has_defaults_and_is_the_same_when_it_is_written_again() -> None:
    sweep = parsed(parameters={"lr": {"log": ["1e-4", 0.1]}, "batch": [32, "64", "x", True, 0.5], "n": {"int": [1, 4]}})
    assert (sweep.goal, sweep.trials, sweep.parallel, sweep.search, sweep.seed) == ("max", 20, 2, "tpe", 0)
    assert sweep.parameters["batch"].values == [32, "64", "x", True, 0.5]
    assert (sweep.parameters["lr"].low, sweep.parameters["lr"].high) == (1e-4, 0.1)
    whole = parse_manifest(manifest(), HERE).manifest
    assert parse_manifest(manifest_text(whole), HERE).manifest == whole
    assert Manifest.model_validate(json.loads(whole.model_dump_json(exclude_none=True))) == whole


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"parameters": {}}, "sweep.parameters: expected at least one parameter, found none"),
        ({"parameters": {"lr": 3}}, "sweep.parameters.lr: expected a list of values such as [32, 64], or a range"),
        ({"parameters": {"lr": {"log": [0, 1]}}}, "sweep.parameters.lr.log: expected [LOW, HIGH], two numbers above 0"),
        ({"parameters": {"lr": {"int": [1, 2.5]}}}, "sweep.parameters.lr.int: expected [LOW, HIGH], two whole numbers"),
        ({"parameters": {"lr": {"log": [1, 2], "int": [1, 2]}}}, "found log and int"),
        ({"parameters": {"lr": {"log": [1, 2], "step": 1}}}, "sweep.parameters.lr.step: log has no step"),
        ({"parameters": {"lr": {"uniform": [1, 2], "step": 3}}}, "expected a number above 0 and up to 1, found 3"),
        ({"parameters": {"lr": {"int": [1, 4], "step": 1.5}}}, "step: expected a whole number, found 1.5"),
        ({"parameters": {"lr": [1, 1]}}, "sweep.parameters.lr[1]: the value 1 stands here a second time"),
        ({"parameters": {"lr": [1], "LR": [2]}}, "has the same environment variable as 'LR', WEFT_SWEEP_LR"),
        ({"parameters": {"1r": [1]}}, "expected a name of letters, digits, '_' and '-' that begins with a letter"),
        ({"parameters": {"lr": {"values": [1], "set": "name"}}}, "expected env.NAME, learners, cpus, gpus, memory"),
        ({"parameters": {"lr": {"values": [1], "set": "env.RANK"}}}, "RANK is reserved"),
        (
            {"parameters": {"a": {"values": [1], "set": "cpus"}, "b": {"values": [1], "set": "cpus"}}},
            "sweep.parameters.b.set: the parameter 'a' sets cpus as well",
        ),
        ({"search": "grid"}, "sweep.parameters.lr: the search grid can't try each value of a range"),
        ({"search": "cmaes", "parameters": {"lr": [1, 2]}}, "the search cmaes moves in ranges, and this is a list"),
        ({"search": "pb"}, "expected one of: random, grid, tpe, cmaes, asha, hyperband, pbt, manual, found 'pb'"),
        ({"search": "pbt"}, "sweep.rungs: missing: the search pbt needs a mapping such as {parameter: epochs, max: 20"),
        ({"search": "pbt", "rungs": {"parameter": "n", "max": 9}}, "sweep.rungs.every: missing: the search pbt needs"),
        (
            {"search": "pbt", "rungs": {"parameter": "n", "max": 9, "every": 9}},
            "sweep.rungs.every: expected a whole number from 1 to 8, so that there are two rungs, found 9",
        ),
        (
            {"search": "pbt", "rungs": {"parameter": "n", "max": 9, "every": 3, "min": 1}},
            "sweep.rungs.min: the search pbt has no min: accepted is every",
        ),
        (
            {"search": "pbt", "trials": 20, "rungs": {"parameter": "n", "max": 9, "every": 3}},
            "sweep.trials: expected 24, which is population (8) times rungs (3), found 20; leave it out",
        ),
        (
            {"search": "pbt", "rungs": {"parameter": "n", "max": 10**9, "every": 1}},
            "sweep.rungs: 1,000,000,000 rungs of 8 trials are 8,000,000,000 trials, accepted are at most 100,000",
        ),
        ({"population": 8}, "sweep.population: the search tpe has no population: accepted with pbt"),
        (
            {"search": "asha", "rungs": {"parameter": "n", "max": 9, "every": 3}},
            "sweep.rungs.every: the search asha has no distance between its rungs: accepted with pbt",
        ),
        ({"search": "asha"}, "sweep.rungs: missing: the search asha needs a mapping such as {parameter: epochs"),
        ({"rungs": {"parameter": "n", "max": 9}}, "sweep.rungs: the search tpe has no rungs: accepted with asha or"),
        ({"search": "asha", "rungs": {"max": 9}}, "sweep.rungs.parameter: missing"),
        ({"search": "asha", "rungs": {"parameter": "n", "max": 2}}, "expected a whole number from 3, which is min"),
        ({"search": "asha", "rungs": {"parameter": "lr", "max": 9}}, "the search chooses 'lr': give this parameter"),
        ({"search": "asha", "rungs": {"parameter": "LR", "max": 9}}, "the same environment variable as 'lr'"),
        (
            {"search": "asha", "trials": 26, "rungs": {"parameter": "n", "max": 27}},
            "sweep.trials: expected a whole number from 27, so that a trial reaches the last rung, found 26",
        ),
        (
            {"search": "hyperband", "trials": 3, "rungs": {"parameter": "n", "max": 27}},
            "sweep.trials: expected a whole number from 4",
        ),
        (
            {"search": "asha", "rungs": {"parameter": "n", "max": 10**9}},
            "sweep.rungs: one of 387,420,489 trials would reach the last rung: accepted is a larger min or reduction",
        ),
        ({"goal": "most"}, "sweep.goal: expected one of: max, min"),
        ({"trials": 0}, "sweep.trials: expected a whole number from 1 to 100000"),
        ({"stop": {"value": "x"}}, "sweep.stop.value: expected a number"),
        ({"metric": None}, "sweep.metric: missing"),
        ({"stopp": {}}, "unknown key 'stopp': did you mean 'stop'?"),
    ],
)
def test_what_is_wrong_in_a_sweep_is_named_with_its_place(sweep: dict[str, Any], message: str) -> None:
    assert any(message in problem for problem in problems(manifest(**sweep))), problems(manifest(**sweep))


def test_rungs_have_defaults_and_give_the_program_a_parameter() -> None:
    rungs = {"parameter": "epochs", "max": 27}
    text = manifest(search="asha", rungs=rungs).replace("train.py", "train.py --epochs ${sweep.epochs}")
    whole = parse_manifest(text, HERE).manifest
    assert parse_manifest(manifest_text(whole), HERE).manifest == whole
    sweep = whole.sweep
    assert sweep is not None
    assert sweep.rungs is not None
    assert (sweep.trials, sweep.rungs.min, sweep.rungs.reduction, sweep.rungs.sync) == (27, 1, 3, False)
    assert parsed(search="hyperband", rungs=rungs).trials == 20
    text = manifest(search="pbt", parallel=9, rungs={"parameter": "epochs", "max": 5, "every": 2})
    whole = parse_manifest(text, HERE).manifest
    assert parse_manifest(manifest_text(whole), HERE).manifest == whole
    assert whole.sweep is not None
    assert whole.sweep.rungs is not None
    assert (whole.sweep.population, whole.sweep.rungs.ends, whole.sweep.trials) == (9, [2, 4, 5], 27)
    assert sweep.given({"lr": 0.1}, 1) == {"lr": 0.1, "epochs": 3}
    assert sweep.given({"lr": 0.1}, None) == {"lr": 0.1, "epochs": 27}, "a trial that runs elsewhere"


def test_a_reference_names_a_parameter() -> None:
    text = manifest().replace("train.py", "train.py --lr ${sweep.lrr}")
    assert problems(text) == ["framework.command: ${sweep.lrr} names no parameter: did you mean 'lr'?"]
    plain = "name: x\nframework: {name: pytorch, command: 'python t.py ${sweep.lr}'}\n"
    assert problems(plain) == ["framework.command: ${sweep.lr} names no parameter"]
    found = parse_manifest(plain + "env: {RATE: 'x${sweep.lr}'}\nparameters: {lr: 1e-3, fast: true}\n", HERE).manifest
    assert found.command == "python t.py 0.001"
    assert found.variables == {"RATE": "x0.001", "WEFT_SWEEP_LR": "0.001", "WEFT_SWEEP_FAST": "true"}
    assert found.framework.command == "python t.py ${sweep.lr}"  # a rerun may have another value


def test_a_manifest_has_parameters_or_a_sweep() -> None:
    both = problems(manifest() + "parameters: {lr: 1}\n")
    assert both == ["parameters: sweep gives the parameters their values: leave out either of the two"]


def test_each_trial_is_no_version_of_a_model() -> None:
    store = "data_stores: [{datastore: default, training_results: {container: out, model: mnist}}]\n"
    assert any("register the best one" in problem for problem in problems(manifest() + store))


# --- the search ---

_FLOATS = st.tuples(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3)).map(lambda pair: (pair[0], pair[0] + pair[1]))
_POSITIVE = st.tuples(st.floats(1e-6, 1.0), st.floats(1.5, 1e6)).map(lambda pair: (pair[0], pair[0] * pair[1]))
_WHOLE = st.tuples(st.integers(-1000, 1000), st.integers(1, 1000)).map(lambda pair: (pair[0], pair[0] + pair[1]))
_COUNTS = st.tuples(st.integers(1, 1000), st.integers(1, 1000)).map(lambda pair: (pair[0], pair[0] + pair[1]))
_RANGES = st.one_of(
    _FLOATS.map(lambda ends: SweepParameter(kind="uniform", low=ends[0], high=ends[1])),
    _POSITIVE.map(lambda ends: SweepParameter(kind="log", low=ends[0], high=ends[1])),
    st.tuples(_WHOLE, st.integers(1, 7)).map(
        lambda told: SweepParameter(
            kind="int", low=told[0][0], high=told[0][1], step=min(told[1], told[0][1] - told[0][0])
        )
    ),
    _COUNTS.map(lambda ends: SweepParameter(kind="int_log", low=ends[0], high=ends[1])),
)
_VALUES = st.lists(
    st.one_of(st.booleans(), st.integers(-9, 9), st.floats(-1, 1), st.text("ab1", max_size=3)),
    min_size=1,
    max_size=5,
    unique_by=lambda value: (type(value), value),
).map(lambda values: SweepParameter(kind="values", values=values))


def _space(parameter: st.SearchStrategy[SweepParameter]) -> st.SearchStrategy[dict[str, SweepParameter]]:
    return st.dictionaries(st.sampled_from("abcd"), parameter, min_size=1, max_size=3)


@st.composite
def _sweeps(draw: st.DrawFn) -> Sweep:
    search = draw(st.sampled_from(["random", "tpe", "cmaes"]))
    space = draw(_space(_RANGES if search == "cmaes" else st.one_of(_RANGES, _VALUES)))
    goal = draw(st.sampled_from(["max", "min"]))
    return Sweep(
        parameters=space, metric="m", goal=goal, trials=40, search=search, seed=draw(st.integers(0, 2**31 - 1))
    )


@given(_sweeps(), st.data())
@hypothesis_settings(max_examples=25)
def test_a_proposal_is_in_the_space_and_is_made_again_from_the_same_trials(sweep: Sweep, data: st.DataObject) -> None:
    known: list[Known] = []
    for number in range(data.draw(st.integers(1, 14))):
        proposal = propose(sweep, number, known)
        assert list(proposal.parameters) == sweep.names
        for name, value in proposal.parameters.items():
            assert sweep.parameters[name].refusal(value) is None, (name, value)
        # As the database has it.
        kept = json.loads(json.dumps(proposal.parameters))
        assert kept == proposal.parameters
        again = propose(sweep, number, known)
        assert again.parameters == proposal.parameters
        reached = data.draw(st.none() | st.floats(-1e6, 1e6))
        known.append(Known(kept, reached, json.loads(json.dumps(proposal.memory))))


@given(_space(st.one_of(_VALUES, st.integers(1, 3).map(lambda n: SweepParameter(kind="int", low=1, high=1 + n)))))
def test_a_grid_has_each_combination_once(space: dict[str, SweepParameter]) -> None:
    sweep = Sweep(parameters=space, metric="m", trials=1, search="grid")
    size = sweep.grid_size
    assert size is not None
    points = [propose(sweep, number, []).parameters for number in range(size)]
    assert len({json.dumps([[type(v).__name__, v] for v in point.values()]) for point in points}) == size
    every = [[parameter.point(at) for at in range(parameter.points or 0)] for _, parameter in sorted(space.items())]
    assert [list(point.values()) for point in points] == [list(values) for values in itertools.product(*every)]


def test_another_seed_makes_other_choices() -> None:
    chosen = [propose(parsed(search="random", seed=seed), 0, []).parameters["lr"] for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]


@pytest.mark.parametrize("search", ["tpe", "cmaes"])
def test_a_search_that_learns_finds_better_values_than_chance(search: str) -> None:
    """The seeds are always the same, so the outcome does not depend on luck."""
    space = {"x": {"uniform": [-5, 5]}, "y": {"uniform": [-5, 5]}}
    best = {}
    for name in (search, "random"):
        sweep = parsed(search=name, parameters=space, goal="min", trials=60)
        known: list[Known] = []
        for number in range(60):
            proposal = propose(sweep, number, known if name != "random" else [])
            x, y = float(proposal.parameters["x"]), float(proposal.parameters["y"])
            known.append(Known(proposal.parameters, (x - 1) ** 2 + (y + 2) ** 2, proposal.memory))
        best[name] = min(trial.value or 0.0 for trial in known)
    assert best[search] < best["random"]


def test_a_decision_knows_a_limited_number_of_trials() -> None:
    assert BEST + NEWEST <= 100  # benchmarks/sweeps.py measures how long a decision takes with so many


@pytest.mark.parametrize(("goal", "value", "good"), [("max", 0.9, True), ("max", 0.89, False), ("min", 0.91, False)])
def test_good_enough(goal: str, value: float, good: bool) -> None:
    assert is_good_enough(parsed(goal=goal, stop={"value": 0.9}), value) is good
    assert is_good_enough(parsed(goal=goal), value) is False


def test_values_are_written_as_programs_read_them() -> None:
    assert [written(value) for value in (True, 3, 1e-05, "a b")] == ["true", "3", "1e-05", "a b"]
    assert fill("${sweep.a} ${sweep.b} ${c}", {"a": 1}) == "1 ${sweep.b} ${c}"


def test_optuna_is_imported_where_it_decides_only() -> None:
    code = "import sys, weft_core.sweeps.trials; print('optuna' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- the importance of parameters ---


@pytest.mark.parametrize("goal", ["min", "max"])
def test_what_decides_the_value_is_important(goal: str) -> None:
    sweep = parsed(parameters={"lr": {"log": [1e-4, 1e-1]}, "n": {"int": [1, 8]}, "kind": ["a", True]}, goal=goal)
    sign = 1 if goal == "min" else -1
    known = [
        Known({"lr": 1e-4 * 10 ** (3 * at / 59), "n": 1 + at % 8, "kind": ("a", True)[at % 2]}, sign * abs(at - 20.0))
        for at in range(60)
    ]
    shares = importance(sweep, known)
    assert next(iter(shares)) == "lr"
    assert shares["lr"] > 0.5
    assert sum(shares.values()) == pytest.approx(1)


def test_few_trials_and_equal_trials_tell_nothing() -> None:
    sweep = parsed()
    known = [Known({"lr": 0.01}, float(at)) for at in range(FEWEST)]
    assert importance(sweep, known[1:]) == {}
    assert importance(sweep, [Known(trial.parameters, 1.0) for trial in known]) == {}
    assert importance(sweep, known) == {"lr": pytest.approx(1)}
