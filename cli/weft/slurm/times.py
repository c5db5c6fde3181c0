"""Time limits as Slurm writes them, and as manifests do."""

from __future__ import annotations

import re


def seconds(time: str) -> int | None:
    """A time limit in seconds; None: there is none. Raises: ValueError, with a message for the user."""
    if time.upper() in ("UNLIMITED", "INFINITE", "-1", "0"):
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", time)
    if not match:
        accepted = "M, M:S, H:M:S, D-H, D-H:M or D-H:M:S (days, hours, minutes, seconds), or UNLIMITED"
        raise ValueError(f"expected {accepted}")
    days, *rest = (int(part) if part is not None else None for part in match.groups())
    first, second, third = rest
    if days is not None or third is not None:
        hours, minutes, left = first, second, third
    else:
        hours, minutes, left = 0, first, second
    return (days or 0) * 86400 + (hours or 0) * 3600 + (minutes or 0) * 60 + (left or 0)


def span(seconds: int) -> str:
    """A duration as manifests have it: ``1d12h``."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return "".join(parts) or "0s"
