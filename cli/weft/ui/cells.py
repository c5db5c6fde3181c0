"""States, reasons and resources of jobs: what the cells of tables and the lines of feeds hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from weft.models import TERMINAL
from weft.words import size

_COLOURED = TERMINAL | {"QUEUED", "PENDING", "DOWNLOADING", "PROCESSING", "STORING"}


def state(name: str) -> Text:
    """A state in its colour."""
    return Text(name, style=_style(name))


def styled_state(name: str, width: int = 0) -> str:
    """A state in its colour as markup, padded to ``width`` characters."""
    return f"[{_style(name)}]{name:<{width}}[/]" if _style(name) else f"{name:<{width}}"


def first_line(text: str) -> str:
    """The first line of a reason, without the `; …:` that leads over to the lines below it."""
    line, _, rest = text.partition("\n")
    return re.sub(r";[^;]*:$", "", line) if rest else line


def shortened(text: str, width: int) -> str:
    """At most ``width`` characters of the text, with … in place of the rest."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _style(name: str) -> str:
    return f"state.{name.lower()}" if name in _COLOURED else ""


def resources(of: Mapping[str, Any]) -> str:
    """``1 cpu, 2 gpus (v100), 1.0 GiB``."""
    parts = []
    if (cpus := of.get("cpus")) is not None:
        parts.append(f"{cpus:g} cpu{'' if cpus == 1 else 's'}")
    if gpus := of.get("gpus"):
        kind = f" ({of['gpu_type']})" if of.get("gpu_type") else ""
        parts.append(f"{gpus} gpu{'' if gpus == 1 else 's'}{kind}")
    if memory := of.get("memory"):
        parts.append(size(int(memory)))
    return ", ".join(parts)


def repository(told: Mapping[str, Any] | None) -> str | None:
    """'commit 6f1c… (main) of https://github.com/team/project.git, folder training'; None: the code is in none."""
    if not told:
        return None
    ref = told.get("ref")
    named = f" ({ref})" if ref and ref != told.get("commit") else ""
    folder = f", folder {told['path']}" if told.get("path") else ""
    return f"commit {told.get('commit')}{named} of {told.get('url')}{folder}"
