"""What all of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Json = Mapping[str, Any]

TERMINAL = frozenset({"COMPLETED", "FAILED", "HALTED"})
"""States that a job does not leave by itself."""


def parse_time(value: Any) -> datetime | None:
    """An ISO 8601 time (always with its offset) or None."""
    return datetime.fromisoformat(value) if isinstance(value, str) and value else None


@dataclass(frozen=True)
class Told:
    """What the server has told. ``raw`` is all of its JSON."""

    raw: Json = field(default_factory=dict, repr=False, compare=False, kw_only=True)


@dataclass(frozen=True)
class Problem:
    """One fault of a manifest: where (``path``, ``line`` from 1), what stood there, what is accepted."""

    path: str
    message: str
    line: int | None = None
    found: str | None = None
    accepted: str | None = None

    @classmethod
    def from_json(cls, data: Json) -> Problem:
        def text(value: Any) -> str | None:
            if isinstance(value, list):
                return ", ".join(str(one) for one in value) or None
            return None if value is None else str(value)

        line = data.get("line")
        return cls(
            path=str(data.get("path") or ""),
            message=str(data.get("message") or ""),
            line=line if isinstance(line, int) else None,
            found=text(data.get("found")),
            accepted=text(data.get("accepted")),
        )
