"""The canonical form of ``sweep`` and ``parameters``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Value = bool | int | float | str
"""The value of a parameter."""
Search = Literal["random", "grid", "tpe", "cmaes", "asha", "hyperband", "pbt", "manual"]
SEARCHES: tuple[str, ...] = get_args(Search)
WITH_RUNGS: tuple[Search, ...] = ("asha", "hyperband", "pbt")
"""The searches whose trials run in rungs."""
REFERENCE = re.compile(r"\$\{sweep\.([^{}]*)\}")
"""``${sweep.NAME}`` in a command or in ``env``."""
_PREFIX = "WEFT_SWEEP_"


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SweepParameter(_Form):
    """The values that a parameter may have: a list of them, or a range."""

    kind: Literal["values", "uniform", "log", "int", "int_log"]
    values: list[Value] = Field(default_factory=list)
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    set: str | None = None
    """The path of the key of the manifest that gets the value."""

    @property
    def points(self) -> int | None:
        """How many values there are; None: too many to try each."""
        if self.kind == "values":
            return len(self.values)
        step = self.step or (1 if self.kind == "int" else None)
        return None if step is None else math.floor((self.high - self.low) / step + 1e-9) + 1

    def point(self, index: int) -> Value:
        """The value with this index, from 0, of those that :attr:`points` counts."""
        if self.kind == "values":
            return self.values[index]
        if self.kind == "int":
            return int(self.low + index * (self.step or 1))
        return float(Decimal(str(self.low)) + index * Decimal(str(self.step or 0)))  # 0.3, not 0.30000000000000004

    def refusal(self, value: Value) -> str | None:
        """Why ``value`` is none of the parameter's; None: it is one."""
        if self.kind == "values":
            same = any(type(known) is type(value) and known == value for known in self.values)
            return None if same else f"accepted is one of {', '.join(map(json.dumps, self.values))}"
        whole = self.kind in ("int", "int_log")
        number = isinstance(value, int) and not isinstance(value, bool)
        number = number or (not whole and isinstance(value, float))
        if not number or not self.low <= float(value) <= self.high:
            return f"accepted is a{' whole' if whole else ''} number from {self.low:g} to {self.high:g}"
        steps = (float(value) - self.low) / self.step if self.step else 0.0
        if abs(steps - round(steps)) > 1e-8:
            return f"accepted is a number from {self.low:g} to {self.high:g} in steps of {self.step:g}"
        return None


class SweepStop(_Form):
    """When a sweep ends before all of its trials have run."""

    value: float | None = None
    """A trial whose metric is as good as this ends the sweep."""
    after_seconds: float | None = None
    """No trial begins later."""
    failures: int = 5
    """So many failed trials in a row end the sweep."""


class Rungs(_Form):
    """How far trials run before only the best of them go on."""

    parameter: str
    """The name of the parameter that tells the program how far to run."""
    min: int = 1
    max: int
    reduction: int = 3
    """One trial of this many goes on to the next rung."""
    sync: bool = False
    """Whether a rung waits for all of its trials before the best of them go on."""
    every: int | None = None
    """With ``pbt`` only: the distance between two rungs."""

    @property
    def ends(self) -> list[int]:
        """Where each rung ends, the lowest first: each multiple of ``every``, or ``max`` divided by ``reduction``
        repeatedly, down to ``min``."""
        if self.every is not None:
            return [*range(self.every, self.max, self.every), self.max]
        ends = [self.max]
        while ends[0] // self.reduction >= self.min:
            ends.insert(0, ends[0] // self.reduction)
        return ends


class Sweep(_Form):
    """Which parameters are searched, by what, and for what."""

    parameters: dict[str, SweepParameter]
    metric: str
    goal: Literal["max", "min"] = "max"
    trials: int
    parallel: int = 2
    search: Search = "tpe"
    rungs: Rungs | None = None
    """With ``asha``, ``hyperband`` and ``pbt`` only."""
    population: int | None = None
    """With ``pbt`` only: how many trials each rung has. They are numbered rung by rung."""
    stop: SweepStop = Field(default_factory=SweepStop)
    seed: int = 0

    @property
    def names(self) -> list[str]:
        """The parameters in the order in which they are searched. The database does not keep the manifest's."""
        return sorted(self.parameters)

    def given(self, chosen: Mapping[str, Value], rung: int | None) -> dict[str, Value]:
        """The parameters of a trial's job: those that the search has chosen, and the end of the trial's rung."""
        if self.rungs is None:
            return dict(chosen)
        return {**chosen, self.rungs.parameter: self.rungs.ends[-1 if rung is None else rung]}

    @property
    def grid_size(self) -> int | None:
        """The number of combinations; None: a parameter has no countable values."""
        sizes = [parameter.points for parameter in self.parameters.values()]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)

    def grid_point(self, number: int) -> dict[str, Value]:
        """The combination of this number, from 0. The last parameter changes first."""
        values: dict[str, Value] = {}
        for name in reversed(self.names):
            parameter = self.parameters[name]
            number, index = divmod(number, parameter.points or 1)
            values[name] = parameter.point(index)
        return dict(sorted(values.items()))


def written(value: Value) -> str:
    """A value as a command or a variable has it."""
    return value if isinstance(value, str) else json.dumps(value)


def variable(name: str) -> str:
    """The environment variable of a parameter."""
    return _PREFIX + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def fill(text: str, parameters: Mapping[str, Value]) -> str:
    """``text`` with the values of the parameters that it names."""
    return REFERENCE.sub(lambda found: written(parameters[found[1]]) if found[1] in parameters else found[0], text)
