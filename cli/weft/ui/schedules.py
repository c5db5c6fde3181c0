"""Schedules as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.models import Schedule, Start
from weft.ui import cells, times
from weft.ui.jobs import table


def schedule_table(schedules: Sequence[Schedule]) -> Table:
    """A line for each schedule."""
    made = table("ID", "NAME", "STATE", "STARTS", "NEXT", "LAST", "JOB")
    for schedule in schedules:
        last = schedule.last
        made.add_row(
            *(schedule.id, Text(schedule.name), cells.state(schedule.state), Text(triggers(schedule))),
            times.moment(schedule.next_at),
            *(("–", "–") if last is None else (times.ago(last.due_at), _job(last))),
        )
    return made


def triggers(schedule: Schedule) -> str:
    """``0 3 * * * (UTC), digits@production``."""
    told = [f"{schedule.cron} ({schedule.timezone})"] if schedule.cron else []
    return ", ".join([*told, *([schedule.on] if schedule.on else [])])


def schedule_panel(schedule: Schedule, starts: Sequence[Start]) -> RenderableType:
    """A schedule, and a table of its newest starts."""
    head = Text.assemble((schedule.name, "bold"), f"  {schedule.id}  ", cells.state(schedule.state))
    parts: list[RenderableType] = [head]
    if schedule.reason:
        parts.append(Text(schedule.reason))
    overlap = f"; overlap: {schedule.overlap}" if schedule.overlap else ""
    parts.append(Text(f"starts at {triggers(schedule)}{overlap}; as {schedule.user}", style="dim"))
    if schedule.next_at:
        parts.append(Text(f"next: {times.moment(schedule.next_at)}"))
    if starts:
        parts += ["", start_table(starts)]
    return Group(*parts)


def start_table(starts: Sequence[Start]) -> Table:
    """A line for each start."""
    made = table("DUE", "TRIGGER", "STATE", "JOB", "REASON")
    for start in starts:
        version = f" of version {start.version}" if start.trigger == "promotion" else ""
        by = f" by {start.user}" if start.user else ""
        made.add_row(
            times.moment(start.due_at),
            Text(f"{start.trigger}{version}{by}"),
            cells.state(start.job_state or start.state),
            start.job or "–",
            Text(start.reason),
        )
    return made


def _job(start: Start) -> Text:
    return Text.assemble(f"{start.job} ", cells.state(start.job_state or "")) if start.job else cells.state(start.state)
