"""An engine that runs learners well, and answers as a cluster in trouble does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Literal

from tests.workers.fake_engine import FakeEngine

from weft_core.engine import EngineUnreachable, Observation
from weft_core.launch import LaunchSpec

Mood = Literal["good", "times out", "late", "denies"]
"""Of one call: it does what it is asked to, does it but says that it has timed out, does it some time after that, or
does not do it."""


@dataclass
class MoodyEngine(FakeEngine):
    """``moods`` are those of the next calls that change something; then it is good."""

    moods: list[Mood] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)
    """Requests that it has accepted but not yet carried out."""
    forgotten: dict[str, Observation] = field(default_factory=dict)
    """Runs that it does not report, although their learners live on."""

    def launch(self, spec: LaunchSpec) -> None:
        self.launches.append(spec)
        self._change(partial(self._make, spec))

    def stop(self, run_name: str, grace: timedelta) -> None:
        self.stops.append((run_name, grace.total_seconds()))
        self._change(lambda: self.runs.pop(run_name, None))

    def observe(self) -> Mapping[str, Observation]:
        self._answer()
        return dict(self.runs)

    def lives(self, run_name: str) -> bool:
        """Whether the processes of a run are there."""
        return run_name in self.runs or run_name in self.forgotten

    def forget(self, run_name: str) -> None:
        if run_name in self.runs:
            self.forgotten[run_name] = self.runs.pop(run_name)

    def remember(self) -> None:
        self.runs |= self.forgotten
        self.forgotten.clear()

    def catch_up(self) -> None:
        """Do what is late."""
        late, self.late = self.late, []
        for work in late:
            work()

    def _make(self, spec: LaunchSpec) -> None:
        if not self.lives(spec.run_name):
            launches = self.launches
            self.launches = []
            super().launch(spec)
            self.launches = launches

    def _change(self, work: Callable[[], object]) -> None:
        mood = self.moods.pop(0) if self.moods else "good"
        if mood == "late":
            self.late.append(work)
        elif mood != "denies":
            work()
        if mood != "good":
            raise EngineUnreachable({"denies": "forbidden"}.get(mood, "timed out"))
