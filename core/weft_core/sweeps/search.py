"""The search: which parameters a trial gets. A function of the sweep and of the trials before, and of nothing else.

Optuna is imported where it decides, and not before: it takes 25 MB.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from weft_core.manifest.sweep_models import Sweep, SweepParameter, Value

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

BEST: Final = 25
"""How many of the best trials each decision knows, whatever their age. TPE counts no more than these as good."""
NEWEST: Final = 75
"""How many of the newest trials each decision knows, so that a decision takes the same time as trials pile up."""
LEARNING: Final = ("tpe", "cmaes")
"""The searches that look at earlier trials."""


@dataclass(frozen=True)
class Known:
    """An earlier trial. Without a value it is under way."""

    parameters: Mapping[str, Value]
    value: float | None
    memory: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Proposal:
    """The parameters of a trial, and the data that the search needs with it later."""

    parameters: dict[str, Value]
    memory: dict[str, Any] = field(default_factory=dict)
    parent: int | None = None
    """The number of the trial whose checkpoint it begins with; None: it begins anew."""


def propose(sweep: Sweep, number: int, earlier: Sequence[Known]) -> Proposal:
    """The parameters of the trial ``number``, from 0.

    Args:
        sweep: with a search other than ``manual``.
        number: of the trial. With the seed, it determines all random choices.
        earlier: the trials that it is to learn from, in the order of their numbers; none for a search that does not
            learn.
    """
    if sweep.search == "grid":
        return Proposal(sweep.grid_point(number))
    _quiet()
    study = study_of(sweep, earlier, _sampler(sweep, chance(sweep.seed, number)))
    asked = study.ask(_space(sweep))
    memory = study.get_trials(deepcopy=False)[-1].system_attrs
    chosen = {name: _plain(sweep.parameters[name], asked.params[name]) for name in sweep.names}
    return Proposal(chosen, dict(memory))


def study_of(sweep: Sweep, trials: Sequence[Known], sampler: BaseSampler | None = None) -> Study:
    """Optuna's view of the sweep and of these trials."""
    _quiet()
    from optuna import create_study

    space = _space(sweep)
    direction: Literal["maximize", "minimize"] = "maximize" if sweep.goal == "max" else "minimize"
    study = create_study(direction=direction, sampler=sampler)
    study.add_trials([_frozen(known, sweep, space) for known in trials])
    return study


def _space(sweep: Sweep) -> dict[str, BaseDistribution]:
    return {name: _distribution(sweep.parameters[name]) for name in sweep.names}


@cache
def _quiet() -> None:
    """Silence Optuna's messages that it begins a study, and that the last step of a range does not reach its end."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", message="The distribution is specified by")


def _sampler(sweep: Sweep, seed: int) -> BaseSampler:
    from optuna import samplers

    if sweep.search == "random" or sweep.rungs is not None:
        return samplers.RandomSampler(seed=seed)
    if sweep.search == "cmaes":
        return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
    return samplers.TPESampler(seed=seed)


def chance(seed: int, number: int) -> int:
    """The seed of all random choices for the trial ``number``."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


def _distribution(parameter: SweepParameter) -> BaseDistribution:
    from optuna import distributions

    low, high, step = parameter.low, parameter.high, parameter.step
    match parameter.kind:
        case "values":
            # By their places: a list may hold 1 and true, which Optuna takes for the same value.
            return distributions.CategoricalDistribution(range(len(parameter.values)))
        case "int" | "int_log":
            steps = int(step or 1)
            top = int(low) + (int(high) - int(low)) // steps * steps
            return distributions.IntDistribution(int(low), top, log=parameter.kind == "int_log", step=steps)
        case "log":
            return distributions.FloatDistribution(low, high, log=True)
    return distributions.FloatDistribution(low, high, step=step)


def _plain(parameter: SweepParameter, chosen: Any) -> Value:
    if parameter.kind == "values":
        value: Value = parameter.values[chosen]
        return value
    if parameter.kind in ("int", "int_log"):
        return int(chosen)
    return min(max(float(chosen), parameter.low), parameter.high)  # the logarithm of an end and back may lie beyond it


def _frozen(known: Known, sweep: Sweep, space: Mapping[str, BaseDistribution]) -> FrozenTrial:
    from optuna.trial import TrialState, create_trial

    return create_trial(
        state=TrialState.RUNNING if known.value is None else TrialState.COMPLETE,
        value=known.value,
        params={name: _optunas(sweep.parameters[name], known.parameters[name]) for name in sweep.names},
        distributions=dict(space),
        system_attrs=dict(known.memory),
    )


def _optunas(parameter: SweepParameter, value: Value) -> Any:
    if parameter.kind != "values":
        return value
    return next(at for at, known in enumerate(parameter.values) if type(known) is type(value) and known == value)


def is_better(sweep: Sweep, value: float, than: float) -> bool:
    """Whether a value of the metric is better than another."""
    return value > than if sweep.goal == "max" else value < than


def is_good_enough(sweep: Sweep, value: float) -> bool:
    """Whether ``stop.value`` of the sweep has been reached."""
    wanted = sweep.stop.value
    return wanted is not None and math.isfinite(value) and not is_better(sweep, wanted, value)
