"""``usage``."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from weft.commands.common import JsonOption, client_of
from weft.models import Usage, UserUse
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.times import moment

app = typer.Typer()
_DAY = "24h"


class By(StrEnum):
    USER = "user"
    PROJECT = "project"


@app.command("usage")
def show_usage(
    ctx: typer.Context,
    by: Annotated[By, typer.Option("--by", help="A line for each user of a project, or for each project.")] = By.USER,
    since: Annotated[str, typer.Option("--from", help="The beginning: 7d, 12h, or an ISO time.")] = _DAY,
    until: Annotated[str | None, typer.Option("--to", help="The end, in the same forms; without it, now.")] = None,
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="Users of all projects (administrators).")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what users have held of the engines: CPU-hours and GPU-hours.

    An attempt holds its resources from its admission until its learners are gone.
    """
    usage = client_of(ctx).usage(since, until, everybody=all_projects)
    rows = usage.users if by is By.USER else _by_project(usage.users)
    if as_json:
        show_json(dict(usage.raw))
    elif as_csv:
        _write(usage, rows, by)
    elif not rows:
        say(f"nobody has held anything since {moment(usage.since)}")
    else:
        show(_table(rows, by))


def _by_project(rows: Sequence[UserUse]) -> list[UserUse]:
    """The sum of each project, the largest use first."""
    sums: dict[str, UserUse] = {}
    for row in rows:
        before = sums.get(row.project, UserUse(row.project, ""))
        sums[row.project] = UserUse(
            project=row.project,
            user="",
            attempts=before.attempts + row.attempts,
            cpu_hours=before.cpu_hours + row.cpu_hours,
            gpu_hours=before.gpu_hours + row.gpu_hours,
        )
    return sorted(sums.values(), key=lambda row: (-row.gpu_hours, -row.cpu_hours, row.project))


def _table(rows: Sequence[UserUse], by: By) -> Table:
    user = ("USER",) if by is By.USER else ()
    numbers = ("ATTEMPTS", "CPU-HOURS", "GPU-HOURS")
    made = table("PROJECT", *user, *numbers, numbers=numbers)
    for row in rows:
        names = (Text(row.project), Text(row.user)) if user else (Text(row.project),)
        made.add_row(*names, f"{row.attempts:,}", f"{row.cpu_hours:,.1f}", f"{row.gpu_hours:,.1f}")
    return made


def _write(usage: Usage, rows: Sequence[UserUse], by: By) -> None:
    """The columns are those of the page's download; a project's line has no user."""
    out = csv.writer(sys.stdout, lineterminator="\n")
    user = ["user"] if by is By.USER else []
    out.writerow(["project", *user, "since", "until", "attempts", "cpu_hours", "gpu_hours"])
    span = [at.isoformat() if at else "" for at in (usage.since, usage.until)]
    for row in rows:
        names = [row.project, row.user] if user else [row.project]
        out.writerow([*names, *span, row.attempts, f"{row.cpu_hours:.4f}", f"{row.gpu_hours:.4f}"])
