"""Numbers as a user reads them."""

from __future__ import annotations


def size(number: float) -> str:
    """Bytes: ``512 MiB``, ``1.5 GiB``."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(number) >= factor:
            return f"{number / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{number:.0f} bytes"


def duration(seconds: float) -> str:
    """``90s`` → ``1m30s``, ``3600`` → ``1h``."""
    whole = round(seconds)
    parts = [(whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s")]
    return "".join(f"{count}{unit}" for count, unit in parts if count) or f"{seconds:g}s"


def count(number: float, noun: str) -> str:
    """``1 learner``, ``2 GPUs``."""
    return f"{number:g} {noun}" + ("" if number == 1 else "s")
