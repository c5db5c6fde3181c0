"""One trial of a sweep: the job that a drill of a sweep's manifest trains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from weft.errors import WeftError

_ACCEPTED = "a list of values, or a range such as {log: [0.001, 0.5]}"


@dataclass(frozen=True)
class Trial:
    """The manifest of a trial.

    Attributes:
        manifest: without ``sweep``, and with ``parameters``.
        values: the keys of the manifest that parameters set, by path.
    """

    manifest: Mapping[str, Any]
    values: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The parameters."""
        return ", ".join(f"{name}={_written(value)}" for name, value in self.manifest["parameters"].items())


def trial_of(text: str, given: Mapping[str, str]) -> Trial | None:
    """A trial of a manifest with ``sweep``; None: the manifest is that of one job.

    A parameter that is not given gets the first of its values, or the middle of its range. The parameter of the rungs
    gets their ``max``.

    Args:
        given: values of the manifest by path, ``{"parameters.lr": "0.1"}``.

    Raises:
        WeftError: a parameter has neither values nor a range.
    """
    try:
        manifest = yaml.safe_load(text)
        sweep = dict(manifest["sweep"])
        told = dict(sweep["parameters"])
        rungs = dict(sweep.get("rungs") or {})
    except (yaml.YAMLError, LookupError, TypeError, ValueError):
        return None  # the server reports problems of the manifest
    parameters, values = {}, {}
    for name, choices in told.items():
        parameters[name] = given.get(f"parameters.{name}") or _value(name, choices)
        if isinstance(choices, Mapping) and "set" in choices:
            values[str(choices["set"])] = _written(parameters[name])
    if name := rungs.get("parameter"):
        parameters[name] = given.get(f"parameters.{name}") or rungs.get("max")
    return Trial({**{key: manifest[key] for key in manifest if key != "sweep"}, "parameters": parameters}, values)


def _value(name: str, choices: Any) -> Any:
    try:
        if isinstance(choices, list):
            return choices[0]
        if "values" in choices:
            return choices["values"][0]
        [kind] = choices.keys() & {"uniform", "log", "int", "int_log"}
        low, high = map(float, choices[kind])
        middle = math.sqrt(low * high) if kind.endswith("log") else (low + high) / 2
        if step := float(choices.get("step") or 0):
            middle = low + (high - low) // step // 2 * step
        return round(middle) if kind.startswith("int") else float(f"{middle:.6g}")
    except (LookupError, TypeError, ValueError, AttributeError):
        raise WeftError(f"sweep.parameters.{name} is {choices!r}; accepted is {_ACCEPTED}") from None


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
