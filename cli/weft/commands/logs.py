"""``logs`` and ``events``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.common import JobArgument, JsonOption, client_of
from weft.commands.ffdl import print_metrics
from weft.commands.following import finish, interruptible, reading
from weft.ui.console import say, show, show_json, show_json_lines, tell
from weft.ui.feed import Feed
from weft.ui.jobs import table
from weft.ui.words import moment, state

app = typer.Typer()
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")]


@app.command("logs")
def logs(
    ctx: typer.Context,
    job: JobArgument,
    follow: Follow = False,
    learner: Annotated[int | None, typer.Option("--learner", "-l", min=1, help="Only this learner, from 1.")] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", "-a", min=1, help="Only this attempt, from 1.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Only the last so many lines.")] = None,
    since: Annotated[str | None, typer.Option(help="Only lines since: 30s, 5m, 2h, or an ISO time.")] = None,
    at: Annotated[str | None, typer.Option(help="Begin with the first line at or after this time.")] = None,
    first: Annotated[int | None, typer.Option("--from", min=0, help="Begin with the line of this number.")] = None,
    last: Annotated[int | None, typer.Option("--to", min=0, help="End with the line of this number.")] = None,
    search: Annotated[str | None, typer.Option("--search", "-s", help="Only lines with this text in them.")] = None,
    regex: Annotated[str | None, typer.Option("--regex", "-e", help="Only lines that match (RE2's syntax).")] = None,
    context: Annotated[
        int, typer.Option("--context", "-C", min=0, max=20, help="Lines before and after each that is found.")
    ] = 0,
    case: Annotated[bool, typer.Option("--case-sensitive", help="Upper and lower case differ in a search.")] = False,
    numbers: Annotated[bool, typer.Option("--line-numbers", "-n", help="Put its number before each line.")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="Put the time before each line.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", hidden=True)] = False,
    as_json: JsonOption = False,
) -> None:
    """Print or search a job's log; with --follow as it grows.

    Lines of different learners are told apart by [1], [2], …. With --follow the exit code is the job's outcome.
    """
    sought = _sought(search, regex, follow=follow, tail=tail)
    if follow and last is not None:
        raise typer.BadParameter("--follow goes on until the job has ended: it has no last line", param_hint="--to")
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
    if sought is not None:
        del which["tail"]
        matches = found.search_logs(sought, regex=regex is not None, case=case, context=context, end=last, **which)
        if not feed.show_matches(matches):
            say("no line matches")
        return
    if not follow:
        if not feed.show_all(found.logs(**which, end=last)):
            say(f"{found.id} ({found.state}) has no such line" + ("" if found.is_terminal else " yet"))
        return

    def work() -> None:
        for item in found.follow_logs(**which, on_trouble=feed.trouble, complete=feed.complete):
            feed.show(item)

    interruptible(found, work)
    finish(found, feed)


def _sought(search: str | None, regex: str | None, *, follow: bool, tail: int | None) -> str | None:
    """What is searched for. Raises BadParameter for what doesn't go together."""
    if search is not None and regex is not None:
        raise typer.BadParameter("there is --regex already: give one of the two", param_hint="--search")
    sought = regex if search is None else search
    if sought is None:
        return None
    hint = "--search" if regex is None else "--regex"
    if not sought:
        raise typer.BadParameter("what is to be looked for?", param_hint=hint)
    if follow or tail is not None:
        raise typer.BadParameter(
            "searches what is there, from its beginning, --from, --at or --since on; not with --follow or --tail",
            param_hint=hint,
        )
    return sought


@app.command("events")
def events(ctx: typer.Context, job: JobArgument, follow: Follow = False, as_json: JsonOption = False) -> None:
    """Print what has happened to a job."""
    client = client_of(ctx)
    found = client.job(job)
    if follow:
        feed = Feed(tags=False, as_json=as_json, events=True)

        def work() -> None:
            for event in client.jobs.follow_events(found.id, on_trouble=feed.trouble):
                if as_json:
                    show_json_lines([dict(event.raw)])
                else:
                    text = f"{event.state}  {event.message}" if event.state else event.message
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
        made.add_row(moment(event.at), attempt, state(event.state or ""), escape(event.message))
    if happened:
        show(made)
    else:
        say("nothing has happened yet")
