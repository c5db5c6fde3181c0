"""Times and spans of time."""

from __future__ import annotations

from datetime import UTC, datetime


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
    """The seconds since ``then``."""
    return (datetime.now(UTC) - then).total_seconds()


def moment(then: datetime | None) -> str:
    """Date and time on this machine's clock."""
    return then.astimezone().strftime("%Y-%m-%d %H:%M:%S") if then else "–"
