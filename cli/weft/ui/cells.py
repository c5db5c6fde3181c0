"""Sizes, times and states in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from weft.models import TERMINAL

_COLOURED = TERMINAL | {"QUEUED", "PENDING", "DOWNLOADING", "PROCESSING", "STORING"}


def size(count: int) -> str:
    """``1.5 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def span(seconds: float) -> str:
    """``42.1 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def short_span(seconds: float) -> str:
    """For tables: ``42s``, ``3m20s``, ``2h05m``, ``3d04h``."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    if minutes < 1:
        return f"{rest}s"
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"


def ago(then: datetime | None, now: datetime | None = None) -> str:
    """``just now``, ``5 min ago``, ``3 h ago``, ``12 d ago``."""
    if then is None:
        return "–"
    seconds = ((now or datetime.now(UTC)) - then).total_seconds()
    if seconds < 60:
        return "just now"
    for unit, length, limit in (("min", 60, 3600), ("h", 3600, 48 * 3600)):
        if seconds < limit:
            return f"{int(seconds // length)} {unit} ago"
    return f"{int(seconds // 86400)} d ago"


def age(then: datetime) -> float:
    """Seconds since then."""
    return (datetime.now(UTC) - then).total_seconds()


def moment(then: datetime | None) -> str:
    """Date and time on this machine's clock."""
    return then.astimezone().strftime("%Y-%m-%d %H:%M:%S") if then else "–"


def state(name: str) -> Text:
    """A state in its colour."""
    return Text(name, style=_style(name))


def styled_state(name: str, width: int = 0) -> str:
    """The same as markup, filled up to ``width`` characters."""
    return f"[{_style(name)}]{name:<{width}}[/]" if _style(name) else f"{name:<{width}}"


def first_line(text: str) -> str:
    """The first line of a reason, without the `; …:` that leads over to the lines below it."""
    line, _, rest = text.partition("\n")
    return re.sub(r";[^;]*:$", "", line) if rest else line


def shortened(text: str, width: int) -> str:
    """At most ``width`` characters, with … for what is left out."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _style(name: str) -> str:
    return f"state.{name.lower()}" if name in _COLOURED else ""


def count(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


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
