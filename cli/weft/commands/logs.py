"""``logs`` and ``events``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.common import JobArgument, JsonOption, client_of
from weft.commands.following import finish, interruptible
from weft.ui.console import say, show, show_json, show_json_lines
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
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, help="Only the last so many lines.")] = None,
    since: Annotated[str | None, typer.Option(help="Only since: 30s, 5m, 2h, or an ISO time.")] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="Put the time before each line.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a job's log; with --follow as it grows.

    Lines of different learners are told apart by [1], [2], …. With --follow the exit code is the job's outcome.
    """
    client = client_of(ctx)
    found = client.job(job)
    which = {"learner": learner, "attempt": attempt, "tail": tail, "since": since}
    feed = Feed(tags=found.learners > 1, timestamps=timestamps, as_json=as_json)
    if not follow:
        feed.show_all(found.logs(**which))
        return

    def work() -> None:
        for item in found.follow_logs(**which, on_trouble=feed.trouble):
            feed.show(item)

    interruptible(found, work)
    finish(found, feed)


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
                    print(f"{moment(event.at)}  {text}", flush=True)

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
