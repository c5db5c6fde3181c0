"""The jobs of a drill. That they are killed and halted: tests/e2e/test_drill.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from weft.drill import run
from weft.resources.jobs import Job


class Halting:
    """A job whose attempt ends before its state becomes HALTED, which a real server shows for a moment only."""

    def __init__(self, states: list[str]) -> None:
        self._states = states
        self.attempts = [SimpleNamespace(n=3, ended_at="2026-01-31T08:15:00Z")]

    @property
    def state(self) -> str:
        return self._states[0]

    @property
    def is_terminal(self) -> bool:
        return self.state == "HALTED"

    def refresh(self) -> Any:
        return Halting(self._states[1:])


def test_a_halted_job_is_over_when_it_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_PAUSE", 0.0)
    job = cast(Job, Halting(["PROCESSING"] * 3 + ["HALTED"]))
    assert run._over(job, 3, halted=True).state == "HALTED"
    assert run._over(job, 3).state == "PROCESSING", "of an attempt that was killed, the end is enough"
