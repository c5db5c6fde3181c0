"""Population based training: how a rung's trials follow from those of the rung before. A function of the sweep and of
these trials, and of nothing else.

Source: Jaderberg et al., "Population Based Training of Neural Networks" (https://arxiv.org/abs/1711.09846). A trial of
the worst quarter takes over the parameters and the checkpoint of a trial of the best quarter, and then changes the
parameters. All others go on as they are. A rung begins when all trials of the rung before have ended.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from weft_core.manifest.sweep_models import Sweep, SweepParameter, Value
from weft_core.sweeps.search import Proposal, chance, propose

SHARE: Final = 4
"""One trial of this many is among the worst, and one among the best."""
_FACTORS: Final = (0.8, 1.2)
_ANEW: Final = 0.25
"""How often a parameter gets a new random value instead of a neighbour of the old one."""


@dataclass(frozen=True)
class Ended:
    """A trial of the rung before."""

    number: int
    parameters: Mapping[str, Value]
    value: float | None
    """None: it has failed, or was halted."""
    lasts: bool
    """Whether another trial can begin with its checkpoint: its job exists, and is kept with its results."""


class NobodyGoesOn(Exception):
    """No trial of a rung can be gone on from. The message is for the user."""


def may_begin(sweep: Sweep, asked: int, told: int) -> bool:
    """Whether the next trial can be chosen: a rung waits for all trials of the rung before."""
    return sweep.population is None or asked % sweep.population > 0 or told == asked


def follow(sweep: Sweep, number: int, before: Sequence[Ended]) -> Proposal:
    """The trial ``number``, of any rung but the first.

    Args:
        before: all trials of the rung before.

    Raises:
        NobodyGoesOn: no trial of it has a value and a checkpoint.
    """
    assert sweep.population is not None
    sign = -1 if sweep.goal == "max" else 1
    ranked = sorted(before, key=lambda trial: (trial.value is None, sign * (trial.value or 0.0), trial.number))
    share = len(ranked) // SHARE
    alive = [trial for trial in ranked if trial.lasts and trial.value is not None]
    if not alive:
        rung = number // sweep.population
        raise NobodyGoesOn(f"no trial of rung {rung} has a value and a checkpoint, so rung {rung + 1} can't begin")
    worst = {trial.number for trial in ranked[-share:]}
    for trial in alive:
        if trial.number == number - sweep.population and trial.number not in worst:
            return Proposal(_searched(sweep, trial), parent=trial.number)
    best = [trial for trial in ranked[:share] if trial in alive] or alive[:1]
    dice = random.Random(chance(sweep.seed, number))  # noqa: S311 - a search, not a secret
    source = best[int(dice.random() * len(best))]
    anew = propose(sweep, number, []).parameters
    changed = {
        name: _explore(sweep.parameters[name], value, anew[name], dice)
        for name, value in _searched(sweep, source).items()
    }
    return Proposal(changed, parent=source.number)


def _searched(sweep: Sweep, trial: Ended) -> dict[str, Value]:
    """Its parameters without the end of its rung."""
    return {name: trial.parameters[name] for name in sweep.names}


def _explore(parameter: SweepParameter, value: Value, anew: Value, dice: random.Random) -> Value:
    """Another value of a parameter: a neighbour, or now and then any value."""
    takes_new, up = dice.random() < _ANEW, dice.random() < 0.5
    if takes_new:
        return anew
    if parameter.kind == "values":
        return _neighbour(parameter.values, value, up)
    number, step = float(value), parameter.step or (1.0 if parameter.kind in ("int", "int_log") else None)
    moved = number * _FACTORS[up]
    if step is not None:
        steps = round((moved - parameter.low) / step)
        if steps == round((number - parameter.low) / step):  # too small a change to be seen
            steps += 1 if up else -1
        top = int((parameter.high - parameter.low) / step + 1e-9)
        return _on_grid(parameter, min(max(steps, 0), top))
    return min(max(moved, parameter.low), parameter.high)


def _on_grid(parameter: SweepParameter, steps: int) -> Value:
    if parameter.kind == "int_log":
        return int(parameter.low) + steps
    return parameter.point(steps)


def _neighbour(values: Sequence[Value], value: Value, up: bool) -> Value:
    at = next(at for at, known in enumerate(values) if type(known) is type(value) and known == value)
    beside = at + 1 if up else at - 1
    if not 0 <= beside < len(values):
        beside = at - 1 if up else at + 1
    return values[min(max(beside, 0), len(values) - 1)]
