"""``list``, ``show``, ``checkpoints``, ``halt``, ``resume``, ``delete``."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from weft.commands.common import JobArgument, JobsArgument, JsonOption, client_of
from weft.commands.several import Several, ask, several
from weft.models import TERMINAL
from weft.resources.jobs import Job
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


StateOption = Annotated[
    list[State] | None,
    typer.Option("--state", "-s", case_sensitive=False, help="Only in this state; repeatable.", metavar="STATE"),
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", "-l", help="Only with KEY=VALUE; repeatable: all of them.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


@app.command("list")
def list_jobs(
    ctx: typer.Context,
    state: StateOption = None,
    label: LabelOption = None,
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
    jobs: JobsArgument = None,
    state: StateOption = None,
    label: LabelOption = None,
    grace: Annotated[
        int | None, typer.Option(min=0, metavar="SECONDS", help="From SIGTERM to SIGKILL; else the server's.")
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stop a job; it keeps its checkpoints and can be resumed.

    The job gets a signal (SIGTERM) and time to save a checkpoint; this command does not wait for that.

    Several jobs may be named, or be found by --state and --label: those are
    shown, and it is asked first.
    """
    ended = sorted(one for one in state or () if one in TERMINAL)
    if ended:
        raise typer.BadParameter(f"{', '.join(ended)}: such jobs have ended, and can't be halted", param_hint="--state")
    alive = [one.value for one in State if one not in TERMINAL]
    states = [one.value for one in state] if state else alive if label else []
    found = several(client_of(ctx), jobs or (), states, label or ())
    if found.filtered and found.jobs and not yes:
        found.ask(f"Halt {_these(found)}?")
    halted: list[Job] = []

    def act(job: Job) -> None:
        told = job.halt(grace)
        halted.append(told)
        if not as_json:
            say(_told(told.id, told.state) if told.is_terminal else f"{told.id} is being halted")

    found.each(act)
    if as_json:
        show_json(dict(halted[0].raw) if found.single else [dict(one.raw) for one in halted])
    elif not found.jobs and not found.code:
        say("no such jobs")
    found.end()


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
    jobs: JobsArgument = None,
    state: StateOption = None,
    label: LabelOption = None,
    yes: YesOption = False,
) -> None:
    """Stop a job and remove it with its logs.

    Results that the manifest sent into a data store of your own stay there.

    Several jobs may be named, or be found by --state and --label; they are
    shown before it is asked.
    """
    found = several(client_of(ctx), jobs or (), [one.value for one in state or ()], label or ())
    if found.jobs and not yes:
        if not found.single:
            found.ask(f"Delete {_these(found)} with logs and results?")
        # FfDL's scripts, which name the server in DLAAS_URL, know no --yes.
        elif sys.stdin.isatty() or "DLAAS_URL" not in os.environ:
            (job,) = found.jobs
            ask(f"Delete {job.id} ({job.name}, {job.state}) with its logs and results?")

    def act(job: Job) -> None:
        job.delete()
        say(f"{job.id} is deleted" if job.is_terminal else f"{job.id} is being stopped and deleted")

    found.each(act)
    if not found.jobs and not found.code:
        say("no such jobs")
    found.end()


def _these(found: Several) -> str:
    return "this job" if len(found.jobs) == 1 else f"these {len(found.jobs)} jobs"


def _told(job_id: str, state: str) -> str:
    return f"{job_id} is {styled_state(state)}"
