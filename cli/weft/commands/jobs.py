"""``list``, ``show``, ``checkpoints``, ``deliveries``, ``label``, ``halt``, ``resume``, ``delete``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.common import JobArgument, JobsArgument, JsonOption, client_of
from weft.commands.several import Several, ask, several
from weft.commands.views import complete_view
from weft.models import TERMINAL
from weft.resources.jobs import Job
from weft.ui.cells import styled_state
from weft.ui.console import say, show, show_json
from weft.ui.jobs import checkpoint_table, delivery_table, job_panel, job_table, metric_columns

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
    typer.Option("--state", "-s", case_sensitive=False, help="Only jobs in this state; repeatable.", metavar="STATE"),
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", help="Only jobs with the label KEY=VALUE; repeatable, jobs must have all labels."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]


@app.command("list")
def list_jobs(
    ctx: typer.Context,
    state: StateOption = None,
    label: LabelOption = None,
    query: Annotated[
        str | None, typer.Option("--q", "-q", help="Only jobs with this text in id, name or description.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only jobs submitted since then: 2h, 3d, or an ISO time.")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            help="Show this metric. With a condition ('NAME<0.3', 'NAME.max>=0.9'), only jobs that meet it.",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            "-c",
            help="Show this as a column: param:NAME (logged with MLflow) or metric:NAME[:min|:max]; repeatable.",
            metavar="COLUMN",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            help="created_at, name, state, duration or metric:NAME[:min|:max]; a - in front sorts in descending order.",
            metavar="ORDER",
        ),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            "--view",
            help="The filters, order and columns of a saved view; other options add to it.",
            metavar="NAME",
            autocompletion=complete_view,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of jobs.")] = _DEFAULT_LIMIT,
    everything: Annotated[bool, typer.Option("--all", "-a", help="List all jobs.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first.

    To list the best jobs by a metric: weft list --sort -metric:val/accuracy:max
    """
    client = client_of(ctx)
    saved = client.views.get(view).search if view is not None else {}
    metric = [*saved.get("metric", ()), *(metric or ())]
    params, measured = _columns([*_shown(saved.get("col", ())), *(column or ())])
    conditions = [condition for condition in metric if any(sign in condition for sign in "<>=")]
    sort = sort or _first(saved, "sort")
    found = client.jobs.list(
        state=[choice.value for choice in state or ()] or saved.get("state", ()),
        label=[*saved.get("label", ()), *(label or ())],
        q=query or _first(saved, "q"),
        since=since or _first(saved, "since"),
        metric=conditions,
        param=[*saved.get("param", ()), *params],
        sort=sort,
        user=_first(saved, "user"),
        engine=_first(saved, "engine"),
        # One job more than the command shows: it tells whether there are more.
        limit=None if everything else limit + 1,
    )
    jobs = list(found)
    more = not everything and len(jobs) > limit
    if more:
        jobs.pop()
    if as_json:
        show_json([dict(job.raw) for job in jobs])
    elif not jobs:
        narrowed = bool(saved or state or label or query or since or conditions)
        say("no such jobs" if narrowed else "no jobs yet; `weft init` writes a starter manifest")
    else:
        show(job_table(jobs, metric_columns([*measured, *metric], sort), params))
        if more and sys.stdout.isatty():
            say(f"[dim]the {'first' if sort else 'newest'} {len(jobs)}; --all lists all[/]")


def _first(saved: Mapping[str, Sequence[str]], name: str) -> str | None:
    return next(iter(saved.get(name, ())), None)


def _shown(columns: Sequence[str]) -> list[str]:
    """The columns of a view that ``--column`` accepts. The others are the page's own, such as ``labels``."""
    return [name for name in columns if name.startswith(("param:", "metric:"))]


def _columns(named: Sequence[str]) -> tuple[list[str], list[str]]:
    """The parameters, and the metrics in the form of ``--metric``, that ``--column`` names."""
    params, metrics = [], []
    for text in named:
        kind, _, name = text.partition(":")
        if kind not in ("param", "metric") or not name:
            raise typer.BadParameter(f"{text!r} is neither param:NAME nor metric:NAME", param_hint="--column")
        if kind == "param":
            params.append(name)
        else:
            metric, _, stat = name.rpartition(":")
            metrics.append(f"{metric}.{stat}" if metric and stat in ("last", "min", "max") else name)
    return params, metrics


@app.command("show")
def show_job(ctx: typer.Context, job: JobArgument, as_json: JsonOption = False) -> None:
    """Show a job: its state and the reason for it, its attempts and its learners."""
    found = client_of(ctx).job(job)
    if as_json:
        show_json(dict(found.raw))
    else:
        show(job_panel(found))


@app.command("checkpoints")
def checkpoints(ctx: typer.Context, job: JobArgument, as_json: JsonOption = False) -> None:
    """List the stored checkpoints of a job, newest first.

    A retry, `resume` and `rerun --from-checkpoint` start from the newest
    checkpoint; `rerun --checkpoint` starts from any of them.
    """
    found = client_of(ctx).job(job)
    kept = found.checkpoints()
    if as_json:
        show_json([dict(checkpoint.raw) for checkpoint in kept])
    elif not kept:
        say(f"{found.id} has no stored checkpoint (yet): it writes none to CHECKPOINT_DIR, or none is complete")
    else:
        show(checkpoint_table(kept, found.id))


@app.command("deliveries")
def deliveries(
    ctx: typer.Context,
    job: JobArgument,
    replay: Annotated[
        str | None, typer.Option(metavar="DELIVERY", help="Send this notification again, with the same event id.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the notifications of a job, with their receivers and outcomes.

    The manifest's `notify` says where they go.
    """
    found = client_of(ctx).job(job)
    if replay is not None:
        again = found.replay_delivery(replay)
        if as_json:
            show_json(dict(again.raw))
        else:
            say(f"{again.id} is being sent to {again.target} again")
        return
    kept = found.deliveries()
    if as_json:
        show_json([dict(delivery.raw) for delivery in kept])
    elif not kept:
        say(f"{found.id} has sent no notification (yet): its manifest has no `notify`, or no event for it has come")
    else:
        show(delivery_table(kept))


@app.command("label")
def label(
    ctx: typer.Context,
    job: JobArgument,
    changes: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE|KEY-…", help="KEY=VALUE sets a label, KEY- removes it.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Set and remove labels of a job.

    Other labels of the job stay. `weft list --label KEY=VALUE` finds its jobs.
    """
    labels: dict[str, str | None] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals and not change.endswith("-"):
            raise typer.BadParameter(f"{change!r} is neither KEY=VALUE nor KEY-", param_hint="KEY=VALUE|KEY-")
        labels[key if equals else change[:-1]] = value if equals else None
    found = client_of(ctx).job(job).edit(labels=labels)
    if as_json:
        show_json(dict(found.raw))
    else:
        shown = " ".join(f"{key}={value}" for key, value in sorted(found.labels.items()))
        say(f"{found.id}: {escape(shown) or 'no labels'}")


@app.command("halt")
def halt(
    ctx: typer.Context,
    jobs: JobsArgument = None,
    state: StateOption = None,
    label: LabelOption = None,
    grace: Annotated[
        int | None, typer.Option(min=0, metavar="SECONDS", help="Time from SIGTERM to SIGKILL. Default: the server's.")
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stop a job; it keeps its checkpoints and can be resumed.

    The job receives SIGTERM and gets time to save a checkpoint. The command does not wait for this.

    You can name several jobs, or select jobs by --state and --label. The
    command shows the selected jobs and asks before it halts them.
    """
    ended = sorted(choice for choice in state or () if choice in TERMINAL)
    if ended:
        raise typer.BadParameter(f"jobs in {', '.join(ended)} have ended and can't be halted", param_hint="--state")
    alive = [choice.value for choice in State if choice not in TERMINAL]
    states = [choice.value for choice in state] if state else alive if label else []
    found = several(client_of(ctx), jobs or (), states, label or ())
    if found.filtered and found.jobs and not yes:
        found.ask(f"Halt {_these(found)}?")
    halted: list[Job] = []

    def act(job: Job) -> None:
        now = job.halt(grace)
        halted.append(now)
        if not as_json:
            say(_state(now) if now.is_terminal else f"{now.id} is being halted")

    found.each(act)
    if as_json:
        show_json(dict(halted[0].raw) if found.single else [dict(halted_job.raw) for halted_job in halted])
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
        say(_state(found))


@app.command("delete")
def delete(
    ctx: typer.Context,
    jobs: JobsArgument = None,
    state: StateOption = None,
    label: LabelOption = None,
    yes: YesOption = False,
) -> None:
    """Stop a job, and remove it and its logs.

    Results in your own data store stay there.

    You can name several jobs, or select jobs by --state and --label. The
    command shows the jobs and asks before it deletes them.
    """
    found = several(client_of(ctx), jobs or (), [choice.value for choice in state or ()], label or ())
    if found.jobs and not yes:
        if not found.single:
            found.ask(f"Delete {_these(found)} with logs and results?")
        # Scripts for FfDL, which name the server in DLAAS_URL, don't use --yes.
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


def _state(job: Job) -> str:
    return f"{job.id} is {styled_state(job.state)}"
