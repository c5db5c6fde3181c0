"""The image catalogue as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from weft.models import Json
from weft.ui.jobs import table

_STATES = {"ready": "", "unknown": "?"}
"""The mark behind an engine's name. An engine that does not have the image is not listed."""


def image_table(images: Sequence[Json], only: str | None = None) -> RenderableType:
    """A line for each framework (or for the framework ``only``) and version. Other accepted versions follow below."""
    made = table("FRAMEWORK", "VERSION", "IMAGE", "RUNS ON", "LAUNCHERS", "ENGINES")
    also = []
    for image in images:
        for framework in image["frameworks"]:
            if only not in (None, framework):
                continue
            engines = [name + _STATES[state] for name, state in image["engines"].items() if state in _STATES]
            made.add_row(
                *(framework, image["version"], Text(image["reference"]), ", ".join(image["devices"])),
                *(", ".join(image["launchers"]), Text(", ".join(engines) or "–")),
            )
            aliases = [alias.partition(":")[2] for alias in image["aliases"] if alias.startswith(f"{framework}:")]
            if aliases:
                also.append(Text(f"{framework} {image['version']} is also {', '.join(aliases)}", style="dim"))
    return Group(made, "", *also) if also else made
