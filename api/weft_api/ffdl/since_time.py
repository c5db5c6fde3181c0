"""``since_time`` and ``pos``, which say where a page begins.

``since_time`` is a time in milliseconds since the epoch, a span until now in Go's form (``1h30m``), or a date in a
usual form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Annotated

from fastapi import Query

from weft_api.http.problems import invalid

SinceTime = Annotated[str, Query(max_length=100)]

_SPAN = re.compile(r"(?:\d{1,12}(?:\.\d{1,9})?(?:ns|us|µs|ms|s|m|h|d))+", re.ASCII)
_PART = re.compile(r"([\d.]+)([a-zµ]+)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}
_GOS = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)? ([+-]\d{4})(?: [A-Z]{1,5})?", re.ASCII)


def parse_since_time(text: str) -> int | None:
    """The time in milliseconds since the epoch; None: from the beginning. Raises Problem invalid_request."""
    text = text.strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 17:
        return int(text)
    try:
        return round(_instant(text).timestamp() * 1000)
    except (ValueError, OverflowError, TypeError):
        accepted = "milliseconds since the epoch, a span such as 90s or 1h30m, or a date such as 2026-01-31T08:00:00Z"
        raise invalid("since_time", f"not a time: expected {accepted}", found=text, accepted=accepted) from None


@dataclass(frozen=True)
class PageStart:
    """Where a page begins."""

    pos: int
    since: int | None = None
    """Milliseconds since the epoch; None: no ``since_time``."""
    last: int | None = None
    """The page begins this many lines before the end, whatever its size."""


def parse_page_start(since_time: str, pos: int) -> PageStart:
    """Where a page begins. A ``since_time`` below 0 is a number of lines before the end.

    Raises:
        Problem: invalid_request.
    """
    if re.fullmatch(r"-\d{1,12}", since_time.strip(), re.ASCII):
        return PageStart(0, last=-int(since_time))
    return PageStart(pos, parse_since_time(since_time))


def _instant(text: str) -> datetime:
    if _SPAN.fullmatch(text):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
        return datetime.now(UTC) - timedelta(seconds=seconds)
    if own := _GOS.fullmatch(text):
        text = f"{own[1]}{(own[2] or '')[:7]}{own[3]}"
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = parsedate_to_datetime(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
