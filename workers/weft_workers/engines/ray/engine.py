"""The engine ``ray``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from weft_core.engine import Capacity, EngineUnreachable, Observation
from weft_core.engine_settings import RaySettings
from weft_core.launch import LaunchSpec


class RayEngine:
    """Runs learners on a Ray cluster.

    Args:
        name: its name in the settings.
        settings: where the cluster is.
        installation_id: whose runs are ours on a shared cluster.
    """

    def __init__(self, name: str, settings: RaySettings, installation_id: str) -> None:
        self.name = name
        self._settings = settings
        self._installation = installation_id

    def launch(self, spec: LaunchSpec) -> None:
        raise EngineUnreachable(f"{self.name}: not built yet")

    def observe(self) -> Mapping[str, Observation]:
        raise EngineUnreachable(f"{self.name}: not built yet")

    def stop(self, run_name: str, grace: timedelta) -> None:
        raise EngineUnreachable(f"{self.name}: not built yet")

    def capacity(self) -> Capacity:
        raise EngineUnreachable(f"{self.name}: not built yet")
