"""``audit``."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.common import JsonOption, client_of
from weft.models import AuditRecord
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.times import moment

app = typer.Typer()
_DEFAULT_LIMIT = 50
_COLOURS = {"refused": "yellow", "failed": "red"}


class Outcome(StrEnum):
    ALLOWED = "allowed"
    REFUSED = "refused"
    FAILED = "failed"


@app.command("audit")
def audit(
    ctx: typer.Context,
    project: Annotated[str | None, typer.Option(help="Only records of this project.")] = None,
    user: Annotated[str | None, typer.Option(help="Only what this user did.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action or group of actions: jobs.halt, jobs.", metavar="ACTION")
    ] = None,
    object_id: Annotated[
        str | None,
        typer.Option(
            "--object", help="Only what happened to this object: an id or a name; job:ID names its kind, too."
        ),
    ] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only with this outcome.", case_sensitive=False)] = None,
    since: Annotated[str | None, typer.Option(help="Only from then on: 2h, 3d, or an ISO time.")] = None,
    until: Annotated[str | None, typer.Option(help="Only before then: 2h, 3d, or an ISO time.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of records.")] = _DEFAULT_LIMIT,
    everything: Annotated[bool, typer.Option("--all", "-a", help="List all records.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List who did what, newest first (administrators, owners)."""
    found = client_of(ctx).audit.list(
        project=project,
        user=user,
        action=action,
        object_id=object_id,
        outcome=outcome.value if outcome else None,
        since=since,
        until=until,
        # One record more than the command shows: it tells whether there are more.
        limit=None if everything else limit + 1,
    )
    records = list(found)
    more = not everything and len(records) > limit
    if more:
        records.pop()
    if as_json:
        show_json([dict(record.raw) for record in records])
    elif not records:
        say("no such records")
    else:
        _show(records)
        if more and sys.stdout.isatty():
            say(f"[dim]the newest {len(records)}; --all lists all[/]")


def _show(records: list[AuditRecord]) -> None:
    made = table("TIME", "WHO", "ADDRESS", "ACTION", "OBJECT", "PROJECT", "OUTCOME")
    for record in records:
        who = record.user or record.actor
        colour = _COLOURS.get(record.outcome)
        outcome = f"{record.outcome} ({record.status})" + (f" ×{record.count}" if record.count > 1 else "")
        made.add_row(
            moment(record.at),
            escape(who),
            escape(record.address),
            escape(record.action),
            escape(record.object),
            escape(record.project or ""),
            f"[{colour}]{outcome}[/]" if colour else outcome,
        )
    show(made)
