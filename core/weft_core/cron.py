"""The due times of a schedule. In a zone with summer time they are those of Debian's cron: a time that a night skips is
due right after the gap, and a time that a night has twice is due once."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_VALUE = r"(?:[0-9]{1,2}|[A-Za-z]{3})"
_TERM = rf"(?:\*|{_VALUE}(?:-{_VALUE})?)(?:/[0-9]{{1,2}})?"
_FIELD = re.compile(rf"{_TERM}(?:,{_TERM})*")
_NAMES = ("minute", "hour", "day of the month", "month", "day of the week")
_DAY = 2
_SECOND = timedelta(seconds=1)


def check_cron(text: str) -> str | None:
    """What is wrong with the five fields; None: nothing."""
    fields = text.split()
    if len(fields) != len(_NAMES):
        return f"expected 5 fields (minute, hour, day, month, day of the week), found {len(fields)}"
    for at, name in enumerate(_NAMES):
        if not _FIELD.fullmatch(fields[at]) and not (at == _DAY and fields[at] == "L"):
            return f"the {name}, {fields[at]!r}, is none of *, 5, 1-5, */15, 1,2 and a name such as MON"
        alone = ["*"] * len(_NAMES)
        alone[at] = fields[at]
        if not _is_read(" ".join(alone)):
            return f"the {name}, {fields[at]!r}, is out of its range"
    if not _is_read(text) or next_time(text, "UTC", datetime(2000, 1, 1, tzinfo=UTC)) is None:
        return "no day matches it"
    return None


def _is_read(cron: str) -> bool:
    from cronsim import CronSim, CronSimError

    try:
        CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


@lru_cache(maxsize=1000)
def check_timezone(text: str) -> str | None:
    """What is wrong with the name of a time zone; None: nothing."""
    try:
        if re.fullmatch(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*", text):
            ZoneInfo(text)
            return None
    except (ZoneInfoNotFoundError, ValueError, OSError):  # the last: the name of a folder of zones
        pass
    return f"there is no time zone {text!r}"


def next_time(cron: str, timezone: str, after: datetime) -> datetime | None:
    """The first due time later than ``after``; None: there is none."""
    from weft_core.due_times import DueTimes

    found = next(DueTimes(cron, after.astimezone(ZoneInfo(timezone))), None)
    return found.astimezone(UTC) if found is not None else None


def last_time(cron: str, timezone: str, due: datetime, until: datetime) -> datetime:
    """The last due time up to ``until``, if ``due`` is a due time that has come."""
    from weft_core.due_times import DueTimes

    # Backwards, so that the search is short for a schedule of each minute after a month of downtime. From a time that a
    # night has twice, this may go too far back.
    start = (until.replace(microsecond=0) + _SECOND).astimezone(ZoneInfo(timezone))
    earlier = (found.astimezone(UTC) for found in DueTimes(cron, start, reverse=True))
    last = max(due, next((found for found in earlier if found <= until), due))
    while (following := next_time(cron, timezone, last)) is not None and following <= until:
        last = following
    return last
