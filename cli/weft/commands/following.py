"""What ``train --follow``, ``rerun --follow`` and ``logs --follow`` share."""

from __future__ import annotations

from collections.abc import Callable

import typer

from weft.client import Client
from weft.errors import NotFound
from weft.exits import ExitCode, exit_code_of_state
from weft.models import Gap
from weft.resources.jobs import Job
from weft.ui.console import say
from weft.ui.feed import Feed
from weft.ui.jobs import outcome
from weft.ui.words import styled_state


def interruptible(job: Job, work: Callable[[], None]) -> None:
    """Run ``work``; Ctrl-C ends the following only, says how to go on, and exits with 130."""
    try:
        work()
    except KeyboardInterrupt:
        say()
        say(f"[dim]stopped following; [/]{job.id}[dim] goes on[/]")
        say(f"  [command]weft logs --follow {job.id}[/]  [dim]to follow it again[/]")
        say(f"  [command]weft halt {job.id}[/]           [dim]to stop it[/]")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def follow_to_the_end(client: Client, job: Job, *, as_json: bool = False) -> None:
    """Show a job's states, progress and log until it has ended, then its outcome; exits with the outcome's code."""
    feed = Feed(tags=job.learners > 1, left_out=reading(job.id), as_json=as_json, events=True)

    def work() -> None:
        for item in client.jobs.watch(job.id, on_trouble=feed.trouble, complete=feed.complete):
            feed.show(item)

    interruptible(job, work)
    finish(job, feed)


def reading(job_id: str, *options: str) -> Callable[[Gap], str]:
    """The command that shows the lines that a gap stands for."""
    return lambda gap: " ".join(("weft logs", job_id, f"--from {gap.first} --to {gap.last}", *options))


def finish(job: Job, feed: Feed) -> None:
    """Say what became of a followed job; exits with the outcome's code."""
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
        say(f"{job.id} is {styled_state(job.state)} again: it has been resumed meanwhile")
    raise typer.Exit(exit_code_of_state(job.state))
