"""What a program forgets to save, by name, and the lines that it lacks (``causes.toml``)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

Key = Literal[
    "no checkpoint",
    "not resumed",
    "rank 0 only",
    "torn save",
    "save at SIGTERM",
    "data repeated",
    "random numbers",
    "counter",
    "optimizer",
    "scheduler",
    "scaler",
    "weights",
    "failed",
    "unknown",
]
_FAMILIES = {"keras": "tensorflow", "horovod": "pytorch", "ray": "pytorch"}


@dataclass(frozen=True)
class Cause:
    """Why a training does not survive.

    Attributes:
        evidence: what was seen.
        sure: whether the evidence leaves no other cause.
    """

    key: Key
    evidence: str
    sure: bool = True

    @property
    def title(self) -> str:
        return str(_causes()[self.key]["title"])

    def lines(self, framework: str) -> str:
        """The lines that a program of this framework lacks; empty: none are known."""
        known = _causes()[self.key]
        return str(known.get(_FAMILIES.get(framework, framework)) or known.get("any", "")).strip()


@cache
def _causes() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files("weft.drill").joinpath("causes.toml").read_text(encoding="utf-8"))
