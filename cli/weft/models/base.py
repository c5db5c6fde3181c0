"""The base of the values, times, and the faults of a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Json = Mapping[str, Any]

TERMINAL = frozenset({"COMPLETED", "FAILED", "HALTED"})
"""The states that a job does not leave by itself."""


def parse_time(value: Any) -> datetime | None:
    """An ISO 8601 time (always with its offset) or None."""
    return datetime.fromisoformat(value) if isinstance(value, str) and value else None


@dataclass(frozen=True)
class ServerValue:
    """A value from the server; ``raw`` is its whole JSON object."""

    raw: Json = field(default_factory=dict, repr=False, compare=False, kw_only=True)


@dataclass(frozen=True)
class Problem:
    """A fault of a manifest: its place (``path``; ``line`` from 1), the value found there, and the accepted values."""

    path: str
    message: str
    line: int | None = None
    found: str | None = None
    accepted: str | None = None

    @classmethod
    def from_json(cls, data: Json) -> Problem:
        def text(value: Any) -> str | None:
            if isinstance(value, list):
                return ", ".join(str(item) for item in value) or None
            return None if value is None else str(value)

        line = data.get("line")
        return cls(
            path=str(data.get("path") or ""),
            message=str(data.get("message") or ""),
            line=line if isinstance(line, int) else None,
            found=text(data.get("found")),
            accepted=text(data.get("accepted")),
        )
