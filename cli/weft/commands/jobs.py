"""``list``, ``show``, ``checkpoints``, ``halt``, ``resume``, ``delete``."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from weft.commands.common import JobArgument, JsonOption, client_of
from weft.ui.console import say, show, show_json
from weft.ui.jobs import checkpoint_table, job_panel, job_table, metric_columns
from weft.ui.words import styled_state

app = typer.Typer()
_DEFAULT_LIMIT = 20


class State(StrEnum):
    QUEUED = "QUEUED"
    PENDING = "PENDING"
    DOWNLOADING = "DOWNLOADING"
    PROCESSING = "PROCESSING"
    STORING = "STORING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    HALTED = "HALTED"


@app.command("list")
def list_jobs(
    ctx: typer.Context,
    state: Annotated[
        list[State] | None,
        typer.Option("--state", "-s", case_sensitive=False, help="Only in this state; repeatable.", metavar="STATE"),
    ] = None,
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="Only with KEY=VALUE; repeatable.")] = None,
    query: Annotated[
        str | None, typer.Option("--q", "-q", help="Only with this text in id, name, description.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only submitted since: 2h, 3d, or an ISO time.")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", help="Show this metric; 'NAME<0.3', 'NAME.max>=0.9': only such jobs."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(help="created_at, name, state, metric:NAME[:min|:max]; - in front: descending.", metavar="ORDER"),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = _DEFAULT_LIMIT,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All of them.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first.

    The best by a metric: weft list --sort -metric:val/accuracy:max
    """
    conditions = [one for one in metric or () if any(sign in one for sign in "<>=")]
    found = client_of(ctx).jobs.list(
        state=[one.value for one in state or ()],
        label=label or (),
        q=query,
        since=since,
        metric=conditions,
        sort=sort,
        # One more than is shown tells whether there are more.
        limit=None if everything else limit + 1,
    )
    jobs = list(found)
    more = not everything and len(jobs) > limit
    if more:
        jobs.pop()
    if as_json:
        show_json([dict(job.raw) for job in jobs])
    elif not jobs:
        narrowed = bool(state or label or query or since or conditions)
        say("no such jobs" if narrowed else "no jobs yet; `weft init` writes a manifest to begin with")
    else:
        show(job_table(jobs, metric_columns(metric or (), sort)))
        if more and sys.stdout.isatty():
            say(f"[dim]the {'first' if sort else 'newest'} {len(jobs)}; --all lists all[/]")


@app.command("show")
def show_job(ctx: typer.Context, job: JobArgument, as_json: JsonOption = False) -> None:
    """Show a job: state and reason, attempts, learners."""
    found = client_of(ctx).job(job)
    if as_json:
        show_json(dict(found.raw))
    else:
        show(job_panel(found))


@app.command("checkpoints")
def checkpoints(ctx: typer.Context, job: JobArgument, as_json: JsonOption = False) -> None:
    """List the checkpoints that are kept of a job, newest first.

    The newest is what a retry, `resume` and `rerun --from-checkpoint` begin
    with; `rerun --checkpoint` takes any.
    """
    found = client_of(ctx).job(job)
    kept = found.checkpoints()
    if as_json:
        show_json([dict(one.raw) for one in kept])
    elif not kept:
        say(f"no checkpoint of {found.id} is stored (yet): it writes none into CHECKPOINT_DIR, or none is complete")
    else:
        show(checkpoint_table(kept, found.id))


@app.command("halt")
def halt(
    ctx: typer.Context,
    job: JobArgument,
    grace: Annotated[
        int | None, typer.Option(min=0, metavar="SECONDS", help="From SIGTERM to SIGKILL; else the server's.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a job; it keeps its checkpoints and can be resumed.

    The job gets a signal (SIGTERM) and time to save a checkpoint; this command does not wait for that.
    """
    found = client_of(ctx).job(job).halt(grace)
    if as_json:
        show_json(dict(found.raw))
    else:
        say(_told(found.id, found.state) if found.is_terminal else f"{found.id} is being halted")


@app.command("resume")
def resume(ctx: typer.Context, job: JobArgument, as_json: JsonOption = False) -> None:
    """Queue a halted or failed job again, from its last checkpoint."""
    found = client_of(ctx).job(job).resume()
    if as_json:
        show_json(dict(found.raw))
    else:
        say(_told(found.id, found.state))


@app.command("delete")
def delete(
    ctx: typer.Context,
    job: JobArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Stop a job and remove it with its logs.

    Results that the manifest sent into a data store of your own stay there.
    """
    found = client_of(ctx).job(job)
    # FfDL's scripts, which name the server in DLAAS_URL, know no --yes.
    if not yes and (sys.stdin.isatty() or "DLAAS_URL" not in os.environ):
        if not sys.stdin.isatty():
            raise typer.BadParameter("there is no terminal to ask at: give --yes", param_hint="--yes")
        typer.confirm(
            f"Delete {found.id} ({found.name}, {found.state}) with its logs and results?", abort=True, err=True
        )
    found.delete()
    say(f"{found.id} is deleted" if found.is_terminal else f"{found.id} is being stopped and deleted")


def _told(job_id: str, state: str) -> str:
    return f"{job_id} is {styled_state(state)}"
