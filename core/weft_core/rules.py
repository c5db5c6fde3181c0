"""The conditions of a manifest's ``rules``: what users write, and what it means (docs/notify.md).

Conditions about the log and about metrics are checked where the API takes in lines and metrics, those about time by the
workers (:mod:`weft_core.lifecycle.rules`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar

ACCEPTED = (
    "log /REGEX/, metric NAME is nan, metric NAME > NUMBER, metric NAME < NUMBER, or no step for DURATION "
    "(such as 10m or 1h30m)"
)
LONGEST = 1000
"""Characters of a condition."""
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
_LOG = re.compile(r"log\s+/(.+)/", re.DOTALL)
_METRIC = re.compile(rf"metric\s+(\S.*?)\s*(?:\s(is\s+nan)|([<>])\s*({_NUMBER}))", re.IGNORECASE)
_NO_STEP = re.compile(r"no\s+step\s+for\s+((?:[0-9]+(?:\.[0-9]+)?\s*[smhd]\s*)+)", re.IGNORECASE)
_SPAN = re.compile(r"([0-9.]+)\s*([smhd])", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SHORTEST_SPAN, _LONGEST_SPAN = 10, 30 * 86400


@dataclass(frozen=True)
class LogCondition:
    """A line of the job's log matches an RE2 pattern."""

    pattern: str


@dataclass(frozen=True)
class MetricCondition:
    """A value of a metric, by its name as lists of jobs show it (``loss``, ``val/accuracy``)."""

    name: str
    comparison: Literal["nan", ">", "<"]
    bound: float = 0.0

    def holds(self, value: float) -> bool:
        match self.comparison:
            case "nan":
                return math.isnan(value)
            case ">":
                return value > self.bound
            case "<":
                return value < self.bound


@dataclass(frozen=True)
class NoStepCondition:
    """The program has reported no metric for so long, while the job was PROCESSING."""

    seconds: float


Condition = LogCondition | MetricCondition | NoStepCondition
SomeCondition = TypeVar("SomeCondition", LogCondition, MetricCondition, NoStepCondition)


@lru_cache(1024)
def parse_condition(text: str) -> Condition:
    """The meaning of a rule's ``when``. The pattern of a log is not compiled here.

    Raises:
        ValueError: it has none of the accepted forms; the message says which these are.
    """
    if found := _LOG.fullmatch(text):
        return LogCondition(found[1])
    if found := _METRIC.fullmatch(text):
        if found[2]:
            return MetricCondition(found[1], "nan")
        return MetricCondition(found[1], ">" if found[3] == ">" else "<", float(found[4]))
    if found := _NO_STEP.fullmatch(text):
        seconds = sum(float(number) * _SECONDS[unit.lower()] for number, unit in _SPAN.findall(found[1]))
        if not _SHORTEST_SPAN <= seconds <= _LONGEST_SPAN:
            raise ValueError(f"expected a duration from {_SHORTEST_SPAN}s to 30d after 'no step for'")
        return NoStepCondition(seconds)
    raise ValueError(f"expected {ACCEPTED}")


def conditions(manifest: Mapping[str, Any], kind: type[SomeCondition]) -> list[tuple[int, SomeCondition]]:
    """The conditions of one kind in a manifest's canonical form, each with the index of its rule."""
    parsed = ((index, parse_condition(rule["when"])) for index, rule in enumerate(manifest.get("rules") or ()))
    return [(index, condition) for index, condition in parsed if isinstance(condition, kind)]
