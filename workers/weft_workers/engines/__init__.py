"""The engines, on which learners run. :func:`build` makes the engines that the settings name."""

from __future__ import annotations

import structlog

from weft_core.engine import Engine
from weft_core.engine_settings import EngineSettings, KubernetesSettings, LocalSettings, RaySettings
from weft_core.outgoing import Outgoing
from weft_core.settings import Settings
from weft_workers.engines.broken import BrokenEngine
from weft_workers.engines.local import LocalEngine
from weft_workers.environments import EnvironmentBuilder

log = structlog.get_logger(__name__)


def build(settings: Settings, installation_id: str) -> dict[str, Engine]:
    """The engines of the settings, by name. None of them gets a request yet. An engine with impossible settings
    (such as a missing kubeconfig) is unreachable, with the reason, and does not affect the others."""
    made: dict[str, Engine] = {}
    for name, chosen in settings.engines.items():
        try:
            made[name] = _build(name, chosen, settings, installation_id)
        except Exception as error:  # whatever it is, the other engines work
            log.exception("an engine could not be set up", engine=name)
            made[name] = BrokenEngine(name, str(error) or type(error).__name__)
    return made


def _build(name: str, chosen: EngineSettings, settings: Settings, installation_id: str) -> Engine:
    match chosen:
        case LocalSettings():
            images = EnvironmentBuilder(EnvironmentBuilder.root_of(settings.home))
            outgoing = Outgoing(settings.outgoing.allow)
            return LocalEngine(name, chosen, settings.home, images, installation_id, outgoing)
        case KubernetesSettings():
            # Imported here, because the client takes a second to load, which other installations need not spend.
            from weft_workers.engines.kubernetes import KubernetesEngine

            return KubernetesEngine(name, chosen, settings.images.repository, installation_id)
        case RaySettings():
            from weft_workers.engines.ray import RayEngine

            return RayEngine(name, chosen, installation_id)
