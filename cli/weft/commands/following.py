"""Following a job: shared by ``train --follow``, ``rerun --follow`` and ``logs --follow``."""

from __future__ import annotations

from collections.abc import Callable

import typer

from weft.client import Client
from weft.errors import NotFound
from weft.exits import ExitCode, exit_code_of_state
from weft.models import Gap
from weft.resources.jobs import Job
from weft.ui.cells import styled_state
from weft.ui.console import say
from weft.ui.feed import Feed
from weft.ui.jobs import outcome


def interruptible(job: Job, work: Callable[[], None]) -> None:
    """Run ``work``. Ctrl-C ends only ``work``, prints how to continue, and exits with 130."""
    try:
        work()
    except KeyboardInterrupt:
        say()
        say(f"[dim]stopped following; [/]{job.id}[dim] continues[/]")
        say(f"  [command]weft logs --follow {job.id}[/]  [dim]to follow it again[/]")
        say(f"  [command]weft halt {job.id}[/]           [dim]to stop it[/]")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def follow_to_the_end(client: Client, job: Job, *, as_json: bool = False) -> None:
    """Show a job's states, progress and log, and at its end the outcome. Exits with the code of the outcome."""
    feed = Feed(tags=job.learners > 1, left_out=reading(job.id), as_json=as_json, events=True)

    def work() -> None:
        for item in client.jobs.watch(job.id, on_trouble=feed.trouble, complete=feed.complete):
            feed.show(item)

    interruptible(job, work)
    finish(job, feed)


def reading(job_id: str, *options: str) -> Callable[[Gap], str]:
    """The command that prints the lines of a gap."""
    return lambda gap: " ".join(("weft logs", job_id, f"--from {gap.first} --to {gap.last}", *options))


def finish(job: Job, feed: Feed) -> None:
    """Print the outcome of a followed job. Exits with the code of the outcome."""
    try:
        job = job.refresh()
    except NotFound:
        say(f"{job.id} has been deleted")
        raise typer.Exit(ExitCode.NOT_FOUND) from None
    if feed.as_json:
        feed.json_line("job", dict(job.raw))
    else:
        feed.note("")
        for row in outcome(job):
            say(row)
    if not job.is_terminal:
        say(f"{job.id} is {styled_state(job.state)} again, because it has been resumed")
    raise typer.Exit(exit_code_of_state(job.state))
