"""The Kubernetes engine."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from weft_core.engine import Capacity, EngineUnreachable, Observation
from weft_core.engine_settings import KubernetesSettings
from weft_core.launch import LaunchSpec


class KubernetesEngine:
    """Learners as pods of a cluster."""

    def __init__(self, name: str, settings: KubernetesSettings, repository: str, installation_id: str) -> None:
        self.name = name
        self._settings = settings
        self._repository = repository
        self._installation = installation_id

    def launch(self, spec: LaunchSpec) -> None:
        raise EngineUnreachable(f"engine {self.name}: not there yet")

    def observe(self) -> Mapping[str, Observation]:
        raise EngineUnreachable(f"engine {self.name}: not there yet")

    def stop(self, run_name: str, grace: timedelta) -> None:
        raise EngineUnreachable(f"engine {self.name}: not there yet")

    def capacity(self) -> Capacity:
        raise EngineUnreachable(f"engine {self.name}: not there yet")
