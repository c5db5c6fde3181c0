"""The substitute for an engine that could not be made, so that the other engines work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from weft_core.engine import Capacity, EngineUnreachable, Observation
from weft_core.launch import LaunchSpec


class BrokenEngine:
    """Refuses every call, with the reason. Its jobs wait, and its runs are left alone."""

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
            f"engine {self.name} could not be set up: {self._reason}; correct its settings and start the worker again"
        )
