"""``sweep MANIFEST``, and ``sweep list|show|best|pause|resume|stop|delete``."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from weft import words
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
from weft.errors import InvalidManifest, NotFound, WeftError
from weft.exits import ExitCode
from weft.models import SweepInfo, Trial
from weft.resources.metrics import Curve
from weft.resources.sweeps import ENDED, WITH_RUNGS
from weft.ui import problems
from weft.ui.console import say, show, show_json
from weft.ui.metrics import chart_style
from weft.ui.sweeps import Sights, joined, parameter, sweep_panel, sweep_table, trial_table

_SUBMIT = "submit"
_SHOWN = 20
_CURVES, _RUNNING = 8, 3
"""Trials whose curves are drawn, and how many of them are under way."""
_POLL = 1.0
_KEYS = ("learners", "cpus", "gpus", "memory", "profile")
_RANGE = re.compile(r"(?:(uniform|log|int|int_log):)?([^\s,]+?)\.\.([^\s,]+)")
_VARY = "NAME=32,64 or NAME=[log:|int:|int_log:]LOW..HIGH"


class _Group(TyperGroup):
    """``weft sweep m.yml`` is ``weft sweep submit m.yml``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = [_SUBMIT, *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    help="Search for the best parameters: `weft sweep MANIFEST` submits many jobs that differ in these only.",
)


def complete_sweep(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of sweeps, for the shell's completion; empty if the server does not answer."""
    try:
        sweeps = list(client_of(ctx).sweeps.list())
    except WeftError:
        return []
    return [(sweep.id, f"{sweep.name} {sweep.state}") for sweep in sweeps if sweep.id.startswith(incomplete)]


SweepArgument = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP",
        help="Id, beginning of an id, or @last.",
        autocompletion=complete_sweep,
        show_default=False,
    ),
]


def varied(texts: Sequence[str]) -> dict[str, str]:
    """The values of ``--vary`` as values of the manifest, by path.

    Raises:
        BadParameter: a text has another form, or two texts name the same parameter.
    """
    values: dict[str, str] = {}
    seen: dict[str, str] = {}
    for text in texts:
        path, equals, told = text.partition("=")
        path = path.strip()
        name = path.rpartition(".")[2]
        if not equals or not name or not told.strip():
            raise typer.BadParameter(f"{text!r} does not have the form {_VARY}", param_hint="--vary")
        if name in seen:
            raise typer.BadParameter(f"{seen[name]!r} and {text!r} both vary {name}", param_hint="--vary")
        seen[name] = text
        below = f"sweep.parameters.{name}"
        if found := _RANGE.fullmatch(told.strip()):
            kind = found[1] or "uniform"
            values |= {f"{below}.{kind}[0]": found[2], f"{below}.{kind}[1]": found[3]}
        else:
            values |= {f"{below}.values[{at}]": text.strip() for at, text in enumerate(told.split(","))}
        if path in _KEYS or "." in path:
            values[f"{below}.set"] = path
    return values


@app.command(_SUBMIT, cls=ScriptCommand)
def submit(
    ctx: typer.Context,
    manifest: SourceArgument,
    code: CodeArgument = None,
    arguments: ArgumentsArgument = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="KEY=VALUES",
            help="A parameter: env.LR=log:1e-4..1e-1, env.BATCH=32,64, learners=1,2. A name that is no key of the "
            "manifest, such as lr, is for ${sweep.lr} in the command.",
        ),
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="The metric that rates a trial.")] = None,
    goal: Annotated[str | None, typer.Option("--goal", metavar="max|min", help="What is good.")] = None,
    trials: Annotated[int | None, typer.Option("--trials", min=1, help="How many trials there are.")] = None,
    parallel: Annotated[int | None, typer.Option("--parallel", min=1, help="How many run at the same time.")] = None,
    search: Annotated[
        str | None,
        typer.Option("--search", metavar="NAME", help="random, grid, tpe, cmaes, asha, hyperband, pbt or manual."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="The seed of all random choices.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show each trial as it ends, until the sweep has ended.")
    ] = False,
    settings: SetOption = None,
    framework: FrameworkOption = None,
    packages: WithOption = None,
    name: NameOption = None,
    no_code: NoCodeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a sweep: a manifest with the key `sweep`, or any manifest or script with --vary and --metric.

    `submit` may be left out: `weft sweep MANIFEST`. Example:
    `weft sweep train.py --vary lr=log:1e-4..1e-1 --metric loss --goal min -- --lr '${sweep.lr}'`

    Prints the sweep's id. With --follow, the exit code is 0 if the sweep completes.
    """
    told = {"metric": metric, "goal": goal, "trials": trials, "parallel": parallel, "search": search, "seed": seed}
    values = varied(vary or ())
    values |= {f"sweep.{key}": str(value) for key, value in told.items() if value is not None}
    source = read_source(
        manifest,
        code,
        arguments,
        settings=[*(f"{key}={value}" for key, value in values.items()), *(settings or ())],
        keys={"name": name},
        framework=framework,
        packages=packages,
        no_code=no_code,
    )
    say_unused(source)
    client = client_of(ctx)
    try:
        sweep = _send(client, source)
    except InvalidManifest as error:
        problems.explain(source.title, source.text, error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None
    for note in sweep.notes:
        say(f"[yellow]note:[/] {escape(note)}")
    if as_json:
        show_json(dict(sweep.raw))
    else:
        print(sweep.id, flush=True)
    if follow:
        _follow(client, sweep.id)


def _send(client: Client, source: Source) -> SweepInfo:
    if source.code is None:
        return client.sweeps.submit(source.text, None, source.values)
    with open_bundle(source.code, leave_out=source.leave_out) as bundle:
        sha256 = send_bundle(client, bundle, source.code) if bundle is not None else None
        return client.sweeps.submit(source.text, sha256, source.values)


def _follow(client: Client, sweep_id: str) -> None:
    shown: set[tuple[int, datetime | None]] = set()  # a trial ends once more after it has gone on to its next rung
    while True:
        sweep = client.sweeps.get(sweep_id)
        if sweep.told > len(shown) or sweep.search in WITH_RUNGS:
            for trial in client.sweeps.trials(sweep_id):
                if trial.state == "RUNNING" or (trial.number, trial.ended_at) in shown:
                    continue
                shown.add((trial.number, trial.ended_at))
                chosen = " ".join(f"{name}={parameter(value)}" for name, value in sorted(trial.parameters.items()))
                result = trial.reason if trial.value is None else f"{sweep.metric} {parameter(trial.value)}"
                say(f"trial {trial.number}: {trial.state} {escape(result)} [dim]{escape(chosen)}[/]")
        if sweep.state in ENDED:
            best = f"; the best is trial {sweep.best.number}" if sweep.best else ""
            say(f"{sweep.state}: {escape(sweep.reason)}{best}")
            if sweep.state != "COMPLETED":
                raise typer.Exit(ExitCode.ERROR)
            return
        time.sleep(_POLL)


@app.command("list")
def list_sweeps(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List sweeps, newest first."""
    sweeps = list(client_of(ctx).sweeps.list())
    if as_json:
        show_json([dict(sweep.raw) for sweep in sweeps])
    elif not sweeps:
        say("no sweeps yet; `weft sweep MANIFEST` submits one")
    else:
        show(sweep_table(sweeps))


@app.command("show")
def show_sweep(
    ctx: typer.Context,
    sweep: SweepArgument,
    everything: Annotated[bool, typer.Option("--all", help="Show all trials, by number.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a sweep as its page does: values, curves, parameters and their importance, trials under way and the best."""
    client = client_of(ctx)
    found = client.sweeps.get(client.sweeps.find(sweep).id)
    trials = list(client.sweeps.trials(found.id))
    if as_json:
        show_json({**found.raw, "trials": [dict(trial.raw) for trial in trials], "most_trials": found.trials})
        return
    open_ = [trial for trial in trials if trial.state == "RUNNING"]
    sign = -1 if found.goal == "max" else 1
    best = sorted((t for t in trials if t.value is not None), key=lambda t: (sign * (t.value or 0.0), t.number))
    shown = trials
    if not everything and len(trials) > _SHOWN:
        shown = [*open_[:_SHOWN], *best[: max(_SHOWN - len(open_), 5)]]
    style = chart_style(1, log=False, fit=False)
    running = open_[-_RUNNING:]
    drawn = [*best[: _CURVES - len(running)], *running]
    sights = Sights(_curves(client, found, drawn, style.width), client.sweeps.importance(found.id))
    show(sweep_panel(found, trials, shown, sights, style))


def _curves(client: Client, sweep: SweepInfo, trials: Sequence[Trial], width: int) -> list[tuple[str, Curve]]:
    """The metric of each trial that has reported it, by its first learner, over all attempts."""
    made = []
    for trial in trials:
        if trial.job is None:
            continue
        with suppress(NotFound):  # deleted just now
            curves = client.jobs.metrics.curves(trial.job, [sweep.metric], kind="user", learner=1, width=2 * width)
            if curves:
                made.append((f"trial {trial.number}", joined(curves)))
    return made


@app.command("best")
def show_best(
    ctx: typer.Context,
    sweep: SweepArgument,
    count: Annotated[int, typer.Option("-n", "--number", min=1, help="How many trials.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Show the best trials of a sweep, with their parameters and jobs."""
    client = client_of(ctx)
    found = client.sweeps.find(sweep)
    best = []
    for trial in client.sweeps.trials(found.id, best_first=True):
        best.append(trial)
        if len(best) == count:
            break
    if as_json:
        show_json([dict(trial.raw) for trial in best])
    elif not best:
        raise WeftError(f"no trial of {found.id} has a value yet")
    else:
        show(trial_table(found, best))


@app.command("pause")
def pause(ctx: typer.Context, sweep: SweepArgument, as_json: JsonOption = False) -> None:
    """Let no new trial begin; trials that have begun go on."""
    _steer(ctx, sweep, "pause", as_json)


@app.command("resume")
def resume(ctx: typer.Context, sweep: SweepArgument, as_json: JsonOption = False) -> None:
    """Go on with a paused sweep."""
    _steer(ctx, sweep, "resume", as_json)


@app.command("stop")
def stop(ctx: typer.Context, sweep: SweepArgument, as_json: JsonOption = False) -> None:
    """End a sweep: no new trial begins, and those under way are halted."""
    _steer(ctx, sweep, "stop", as_json)


@app.command("delete")
def delete(
    ctx: typer.Context,
    sweep: SweepArgument,
    jobs: Annotated[bool, typer.Option("--jobs", help="Also delete the jobs of its trials.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
) -> None:
    """Delete a sweep that has ended; its jobs stay unless you say --jobs."""
    client = client_of(ctx)
    found = client.sweeps.find(sweep)
    what = f"{found.id} with the jobs of its {words.count(found.asked, 'trial')}" if jobs else found.id
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("there is no terminal to ask; use --yes", param_hint="--yes")
        typer.confirm(f"Delete {what} ({found.name})?", abort=True, err=True)
    client.sweeps.delete(found.id, jobs=jobs)
    say(f"[green]✓[/] {what} is deleted")


def _steer(ctx: typer.Context, reference: str, verb: str, as_json: bool) -> None:
    client = client_of(ctx)
    changed = getattr(client.sweeps, verb)(client.sweeps.find(reference).id)
    if as_json:
        show_json(dict(changed.raw))
    else:
        say(f"[green]✓[/] {changed.id} is {changed.state}")
