"""What logs and tracebacks show of a value with secrets."""

from __future__ import annotations

from typing import Any


def repr_without(value: Any, *secrets: str) -> str:
    """The ``repr`` of a NamedTuple without the fields ``secrets``."""
    fields = (f"{name}={getattr(value, name)!r}" for name in value._fields if name not in secrets)
    return f"{type(value).__name__}({', '.join(fields)})"
