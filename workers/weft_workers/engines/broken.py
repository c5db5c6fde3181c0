"""What stands in for an engine that could not be made, so that the others work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from weft_core.engine import Capacity, EngineUnreachable, Observation
from weft_core.launch import LaunchSpec


class BrokenEngine:
    """Answers nothing, and says why. Its jobs wait, and what runs there is left alone."""

    grows_runs = False

    def __init__(self, name: str, reason: str) -> None:
        self.name, self._reason = name, reason

    def launch(self, spec: LaunchSpec) -> None:
        raise self._error()

    def grow(self, spec: LaunchSpec, ranks: Sequence[int]) -> None:
        raise self._error()

    def observe(self) -> Mapping[str, Observation]:
        raise self._error()

    def stop(self, run_name: str, grace: timedelta) -> None:
        raise self._error()

    def capacity(self) -> Capacity:
        raise self._error()

    def _error(self) -> EngineUnreachable:
        return EngineUnreachable(
            f"engine {self.name} could not be set up: {self._reason}; mend its settings and start the worker again"
        )
