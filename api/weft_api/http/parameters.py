"""Query parameters that several features take."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query

from weft_api.http.problems import invalid

NAME_PATTERN = r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
"""The names of secrets and data stores."""

LearnerId = Annotated[
    int | None, Query(ge=1, le=100_001, alias="learner", description="Only the learner with this LEARNER_ID.")
]
AttemptNumber = Annotated[int | None, Query(ge=1, le=1_000_000, alias="attempt", description="Only this attempt.")]

Since = Annotated[
    str | None,
    Query(
        max_length=64,
        description="Only from this time on: ISO 8601, milliseconds since the epoch, or a span until now such as "
        "`30s`, `5m`, `2h`, `1d`.",
        examples=["30m"],
    ),
]

At = Annotated[
    str | None,
    Query(
        max_length=64,
        description="Start with the first line at or after this time. The forms are those of `since`.",
        examples=["2026-01-31T08:00:00Z"],
    ),
]

_SPAN = re.compile(r"(\d{1,9})(ms|s|m|h|d)", re.ASCII)
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_since(text: str | None, name: str = "since") -> datetime | None:
    """The instant that the parameter ``name`` means: ISO 8601, milliseconds since the epoch, or a span until now.

    Raises:
        Problem: invalid_request.
    """
    if not text:
        return None
    try:
        if span := _SPAN.fullmatch(text):
            return datetime.now(UTC) - timedelta(**{_UNITS[span[2]]: int(span[1])})
        if text.isascii() and text.isdigit():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        raise invalid(
            f"query.{name}",
            "not a time",
            found=text,
            accepted="2026-01-31T08:00:00Z, milliseconds since the epoch, or a span: 30s, 5m, 2h, 1d",
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
