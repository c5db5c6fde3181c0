"""Where learners run. :func:`build` makes the engines that the settings name."""

from __future__ import annotations

from weft_core.engine import Engine
from weft_core.engine_settings import EngineSettings, KubernetesSettings, LocalSettings, RaySettings
from weft_core.settings import Settings
from weft_workers.engines.local import LocalEngine
from weft_workers.environments import EnvironmentBuilder


def build(settings: Settings, installation_id: str) -> dict[str, Engine]:
    """The engines of the settings, by name. None of them is asked anything yet.

    Raises:
        ValueError: an engine's settings can't be (a kubeconfig that is not there).
    """
    return {name: _build(name, chosen, settings, installation_id) for name, chosen in settings.engines.items()}


def _build(name: str, chosen: EngineSettings, settings: Settings, installation_id: str) -> Engine:
    match chosen:
        case LocalSettings():
            images = EnvironmentBuilder(EnvironmentBuilder.root_of(settings.home))
            return LocalEngine(name, chosen, settings.home, images, installation_id)
        case KubernetesSettings():
            # Here, as the client's import takes a second that other installations need not spend.
            from weft_workers.engines.kubernetes import KubernetesEngine

            return KubernetesEngine(name, chosen, settings.images.repository, installation_id)
        case RaySettings():
            from weft_workers.engines.ray import RayEngine

            return RayEngine(name, chosen, installation_id)
