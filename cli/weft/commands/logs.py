"""``logs`` and ``events``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.common import JobArgument, JsonOption, client_of
from weft.commands.ffdl import print_metrics
from weft.commands.following import finish, interruptible, reading
from weft.ui.cells import state
from weft.ui.console import say, show, show_json, show_json_lines, tell
from weft.ui.feed import Feed
from weft.ui.jobs import table
from weft.ui.removed import gone
from weft.ui.times import moment

app = typer.Typer()
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job has ended.")]


@app.command("logs")
def logs(
    ctx: typer.Context,
    job: JobArgument,
    follow: Follow = False,
    learner: Annotated[
        int | None, typer.Option("--learner", "-l", min=1, help="Only the lines of this learner, from 1.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", "-a", min=1, help="Only the lines of this attempt, from 1.")
    ] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Only the last N lines.")] = None,
    since: Annotated[str | None, typer.Option(help="Only lines since then: 30s, 5m, 2h, or an ISO time.")] = None,
    at: Annotated[str | None, typer.Option(help="Start with the first line at or after this time.")] = None,
    first: Annotated[int | None, typer.Option("--from", min=0, help="Start with the line with this number.")] = None,
    last: Annotated[int | None, typer.Option("--to", min=0, help="End with the line with this number.")] = None,
    search: Annotated[str | None, typer.Option("--search", "-s", help="Only lines that contain this text.")] = None,
    regex: Annotated[
        str | None, typer.Option("--regex", "-e", help="Only lines that match this regular expression (RE2).")
    ] = None,
    context: Annotated[
        int,
        typer.Option("--context", "-C", min=0, max=20, help="Number of lines to print before and after each match."),
    ] = 0,
    case: Annotated[bool, typer.Option("--case-sensitive", help="Make the search case-sensitive.")] = False,
    numbers: Annotated[bool, typer.Option("--line-numbers", "-n", help="Print the number of each line.")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="Print the time of each line.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", hidden=True)] = False,
    as_json: JsonOption = False,
) -> None:
    """Print or search a job's log; --follow prints it as it grows.

    If there are several learners, [1], [2] and so on mark their lines. With --follow, the exit code is the job's
    outcome.
    """
    sought = _sought(search, regex, follow=follow, tail=tail)
    if follow and last is not None:
        raise typer.BadParameter(
            "--follow continues until the job has ended; leave out --to or --follow", param_hint="--to"
        )
    client = client_of(ctx)
    found = client.job(job)
    if metrics:  # FfDL's
        interruptible(found, lambda: print_metrics(found, follow=follow, as_json=as_json))
        return
    which = {"learner": learner, "attempt": attempt, "tail": tail, "since": since, "at": at, "start": first}
    options = [f"--{name} {value}" for name, value in (("learner", learner), ("attempt", attempt)) if value]
    feed = Feed(
        tags=found.learners > 1,
        timestamps=timestamps,
        numbers=numbers,
        left_out=reading(found.id, *options),
        as_json=as_json,
    )
    removed = gone(found, "logs")
    if sought is not None:
        del which["tail"]
        matches = found.search_logs(sought, regex=regex is not None, case=case, context=context, end=last, **which)
        if not feed.show_matches(matches):
            say(f"no line matches{f': {removed}' if removed else ''}")
        return
    if not follow:
        if not feed.show_all(found.logs(**which, end=last)):
            missing = f" has no such line{'' if found.is_terminal else ' yet'}"
            say(f"{found.id} ({found.state}){f': {removed}' if removed else missing}")
        return

    if removed:
        say(f"{found.id}: {removed}")

    def work() -> None:
        for item in found.follow_logs(**which, on_trouble=feed.trouble, complete=feed.complete):
            feed.show(item)

    interruptible(found, work)
    finish(found, feed)


def _sought(search: str | None, regex: str | None, *, follow: bool, tail: int | None) -> str | None:
    """The text or expression to search for.

    Raises:
        BadParameter: options don't go together.
    """
    if search is not None and regex is not None:
        raise typer.BadParameter("give either --search or --regex, not both", param_hint="--search")
    sought = regex if search is None else search
    if sought is None:
        return None
    hint = "--search" if regex is None else "--regex"
    if not sought:
        raise typer.BadParameter("the text to search for is empty", param_hint=hint)
    if follow or tail is not None:
        raise typer.BadParameter(
            "a search covers existing lines, from the start, --from, --at or --since; leave out --follow and --tail",
            param_hint=hint,
        )
    return sought


@app.command("events")
def events(ctx: typer.Context, job: JobArgument, follow: Follow = False, as_json: JsonOption = False) -> None:
    """Print the events of a job."""
    client = client_of(ctx)
    found = client.job(job)
    if follow:
        feed = Feed(tags=False, as_json=as_json, events=True)

        def work() -> None:
            for event in client.jobs.follow_events(found.id, on_trouble=feed.trouble):
                if as_json:
                    show_json_lines([dict(event.raw)])
                else:
                    text = f"{event.state}  {event.text}" if event.state else event.text
                    tell(f"{moment(event.at)}  {text}")

        interruptible(found, work)
        return
    happened = list(found.events())
    if as_json:
        show_json([dict(event.raw) for event in happened])
        return
    made = table("TIME", "ATTEMPT", "STATE", "MESSAGE", numbers=("ATTEMPT",))
    made.columns[3].no_wrap = False
    made.columns[3].overflow = "fold"
    for event in happened:
        attempt = "" if event.attempt is None else str(event.attempt)
        made.add_row(moment(event.at), attempt, state(event.state or ""), escape(event.text))
    if happened:
        show(made)
    else:
        say("there are no events yet")
