"""Where learners run. :func:`build` makes the engines that the settings name."""

from __future__ import annotations

from weft_core.engine import Engine
from weft_core.settings import Settings
from weft_workers.engines.local import LocalEngine
from weft_workers.environments import EnvironmentBuilder


def build(settings: Settings, installation_id: str) -> dict[str, Engine]:
    """The engines of the settings, by name.

    Raises:
        ValueError: the settings name an engine of a type that this version does not have.
    """
    engines: dict[str, Engine] = {}
    for name, chosen in settings.engines.items():
        if chosen.type != "local":
            raise ValueError(f"engine {name!r}: type {chosen.type} is not available in this version; it has: local")
        images = EnvironmentBuilder(EnvironmentBuilder.root_of(settings.home))
        engines[name] = LocalEngine(name, chosen, settings.home, images, installation_id)
    return engines
