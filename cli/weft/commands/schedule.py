"""``schedule create|list|show|run|pause|resume|delete``."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer
from rich.markup import escape

from weft.bundle import open_bundle
from weft.client import Client
from weft.commands.common import JsonOption, client_of
from weft.commands.source import (
    ArgumentsArgument,
    CodeArgument,
    FrameworkOption,
    NameOption,
    NoCodeOption,
    ScriptCommand,
    SetOption,
    Source,
    SourceArgument,
    WithOption,
    read_source,
    say_unused,
)
from weft.commands.submitting import send_bundle
from weft.errors import InvalidManifest, WeftError
from weft.exits import ExitCode
from weft.models import Schedule
from weft.ui import problems, times
from weft.ui.console import say, show, show_json
from weft.ui.schedules import schedule_panel, schedule_table

_SHOWN = 20

app = typer.Typer(
    no_args_is_help=True,
    help="Start jobs at times, and at promotions of a model: `weft schedule create MANIFEST`.",
)


def complete_schedule(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of schedules, for the shell's completion; empty if the server does not answer."""
    try:
        schedules = list(client_of(ctx).schedules.list())
    except WeftError:
        return []
    return [(schedule.id, schedule.name) for schedule in schedules if schedule.id.startswith(incomplete)]


ScheduleArgument = Annotated[
    str,
    typer.Argument(
        metavar="SCHEDULE",
        help="Id, beginning of an id, name, or @last.",
        autocompletion=complete_schedule,
        show_default=False,
    ),
]


@app.command("create", cls=ScriptCommand)
def create(
    ctx: typer.Context,
    manifest: SourceArgument,
    code: CodeArgument = None,
    arguments: ArgumentsArgument = None,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="'M H D M W'", help="The times, as cron has them: '0 3 * * *'.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Their time zone, such as Europe/Berlin.")
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option("--overlap", metavar="skip|queue", help="What happens while an earlier job has not ended."),
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="MODEL@STAGE", help="Start a job at each promotion to this stage.")
    ] = None,
    settings: SetOption = None,
    framework: FrameworkOption = None,
    packages: WithOption = None,
    name: NameOption = None,
    no_code: NoCodeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Store a manifest that starts jobs: with the key `schedule` or `on`, or with --cron or --on.

    Example: `weft schedule create manifest.yml . --cron '0 3 * * *' --timezone Europe/Berlin`

    Prints the schedule's id.
    """
    told = {"schedule.cron": cron, "schedule.timezone": timezone, "schedule.overlap": overlap, "on": on}
    values = [f"{key}={value}" for key, value in told.items() if value is not None]
    source = read_source(
        manifest,
        code,
        arguments,
        settings=[*values, *(settings or ())],
        keys={"name": name},
        framework=framework,
        packages=packages,
        no_code=no_code,
    )
    say_unused(source)
    try:
        schedule = _send(client_of(ctx), source)
    except InvalidManifest as error:
        problems.explain(source.title, source.text, error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None
    for note in schedule.notes:
        say(f"[yellow]note:[/] {escape(note)}")
    if as_json:
        show_json(dict(schedule.raw))
        return
    print(schedule.id, flush=True)
    if schedule.next_at:
        say(f"the first job starts at {times.moment(schedule.next_at)}")


def _send(client: Client, source: Source) -> Schedule:
    if source.code is None:
        return client.schedules.create(source.text, None, source.values)
    with open_bundle(source.code, leave_out=source.leave_out) as bundle:
        sha256 = send_bundle(client, bundle, source.code) if bundle is not None else None
        return client.schedules.create(source.text, sha256, source.values)


@app.command("list")
def list_schedules(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List schedules, newest first."""
    schedules = list(client_of(ctx).schedules.list())
    if as_json:
        show_json([dict(schedule.raw) for schedule in schedules])
    elif not schedules:
        say("no schedules yet; `weft schedule create MANIFEST` creates one")
    else:
        show(schedule_table(schedules))


@app.command("show")
def show_schedule(ctx: typer.Context, schedule: ScheduleArgument, as_json: JsonOption = False) -> None:
    """Show a schedule: its next time, and its newest starts with their jobs."""
    client = client_of(ctx)
    found = client.schedules.get(client.schedules.find(schedule).id)
    starts = list(islice(client.schedules.starts(found.id), _SHOWN))
    if as_json:
        show_json({**found.raw, "starts": [dict(start.raw) for start in starts]})
    else:
        show(schedule_panel(found, starts))


@app.command("run")
def run(ctx: typer.Context, schedule: ScheduleArgument, as_json: JsonOption = False) -> None:
    """Start a job of a schedule now, and print its id."""
    client = client_of(ctx)
    start = client.schedules.run(client.schedules.find(schedule).id)
    if as_json:
        show_json(dict(start.raw))
    else:
        print(start.job, flush=True)


@app.command("pause")
def pause(ctx: typer.Context, schedule: ScheduleArgument, as_json: JsonOption = False) -> None:
    """Let a schedule start no jobs; those that have begun go on."""
    client = client_of(ctx)
    _tell(client.schedules.pause(client.schedules.find(schedule).id), as_json)


@app.command("resume")
def resume(ctx: typer.Context, schedule: ScheduleArgument, as_json: JsonOption = False) -> None:
    """Let a paused schedule start jobs again."""
    client = client_of(ctx)
    _tell(client.schedules.resume(client.schedules.find(schedule).id), as_json)


def _tell(changed: Schedule, as_json: bool) -> None:
    if as_json:
        show_json(dict(changed.raw))
    else:
        say(f"[green]✓[/] {changed.id} is {changed.state}")


@app.command("delete")
def delete(ctx: typer.Context, schedule: ScheduleArgument) -> None:
    """Delete a schedule; its jobs stay."""
    client = client_of(ctx)
    found = client.schedules.find(schedule)
    client.schedules.delete(found.id)
    say(f"[green]✓[/] {found.id} is deleted")
