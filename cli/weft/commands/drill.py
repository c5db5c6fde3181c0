"""``drill``: whether a training survives kills and halts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer
from rich.markup import escape

from weft.client import Client
from weft.commands.common import JsonOption, client_of
from weft.commands.engines import complete_engine
from weft.commands.source import (
    ArgumentsArgument,
    CodeArgument,
    CpusOption,
    FrameworkOption,
    GpusOption,
    LearnersOption,
    MemoryOption,
    ScriptCommand,
    SetOption,
    Source,
    SourceArgument,
    WithOption,
    read_source,
)
from weft.commands.submitting import submit
from weft.drill.compare import DATA, TOLERANCE
from weft.drill.report import as_json as to_json
from weft.drill.report import as_markdown
from weft.drill.run import Drill, Result
from weft.drill.trial import trial_of
from weft.errors import InvalidManifest, WeftError
from weft.exits import ExitCode
from weft.resources.jobs import Job
from weft.script import as_yaml
from weft.ui import problems
from weft.ui.console import say, show, show_json
from weft.ui.drill import drill_panel

app = typer.Typer()


@app.command("drill", cls=ScriptCommand)
def drill(
    ctx: typer.Context,
    manifest: SourceArgument,
    code: CodeArgument = None,
    arguments: ArgumentsArgument = None,
    kills: Annotated[int, typer.Option(min=1, max=50, help="How often the second job is killed or halted.")] = 3,
    seed: Annotated[int, typer.Option(help="Chooses the moments; the same seed chooses the same moments.")] = 1,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Engine that runs the jobs. Default: the manifest's.",
            autocompletion=complete_engine,
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Compare only these metrics; * matches any text. Default: all but those of time and speed.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="NAME",
            help="The metrics that say which data a step uses. Default: data/*",
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="The relative difference up to which two values are the same.")
    ] = TOLERANCE,
    grace: Annotated[
        int | None,
        typer.Option(min=0, metavar="SECONDS", help="Time from SIGTERM to SIGKILL at a halt.", show_default=False),
    ] = None,
    settings: SetOption = None,
    learners: LearnersOption = None,
    gpus: GpusOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    framework: FrameworkOption = None,
    packages: WithOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a job undisturbed, then kill and halt it, and compare the two.

    The command submits the job twice. The second job is killed between two
    saves, killed in the middle of a save, and halted and resumed, in turn.
    Then metrics and weights of the two are compared. If they differ, a third
    job, undisturbed, shows whether undisturbed trainings do so, too.

    Of a manifest with `sweep`, the command trains one trial. Each parameter gets its
    first value or the middle of its range, or the value that
    `--set parameters.NAME=VALUE` gives.

    Make the job small first: `--set framework.command='python train.py --epochs 3'`.
    The exit code is 0 if the training survives, 10 if it does not, and 1 if
    nothing could be compared. The second job's notes keep the report.
    """
    source = read_source(
        manifest,
        code,
        arguments,
        settings=settings,
        keys={"learners": learners, "cpus": cpus, "gpus": gpus, "memory": memory, "engine": engine},
        framework=framework,
        packages=packages,
        no_code=False,
    )
    source = _one_job(source)
    client = client_of(ctx)
    made = Drill(
        lambda values: _submit(client, source, values),
        lambda text: say(f"[dim]{escape(text)}[/]"),
        kills,
        seed,
        metrics or (),
        data or DATA,
        tolerance,
        grace,
    )
    try:
        result = made.run()
    except InvalidManifest as error:
        problems.explain(source.title, source.text, error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None
    except KeyboardInterrupt:
        say(f"\nthe jobs of this drill continue; [command]weft halt --label drill-run={made.run_id}[/] stops them")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    _keep(result)
    if as_json:
        show_json(to_json(result))
    else:
        show(drill_panel(result))
    verdict = result.comparison.verdict
    if verdict != "survives":
        raise typer.Exit(ExitCode.JOB_FAILED if verdict == "differs" else ExitCode.ERROR)


def _one_job(source: Source) -> Source:
    """The source, or one trial of its sweep."""
    trial = trial_of(source.text, source.values)
    if trial is None:
        return source
    say(f"[dim]one trial of the sweep, with {escape(str(trial))}; --set parameters.NAME=VALUE chooses another[/]")
    return replace(
        source,
        manifest=trial.manifest,
        title=f"the manifest of a trial of {source.title}",
        text=as_yaml(trial.manifest),
        values={**trial.values, **source.values},
    )


def _submit(client: Client, source: Source, values: Mapping[str, str]) -> Job:
    return submit(client, replace(source, values={**source.values, **values}))


def _keep(result: Result) -> None:
    """Write the report into the notes of the disturbed job, for its page."""
    job = result.disturbed or result.undisturbed
    try:
        job.edit(notes=as_markdown(result))
    except WeftError as error:
        say(f"[yellow]the report is not in the notes of {job.id}: {escape(str(error))}[/]")
    else:
        say(f"[dim]the notes of {job.id} keep the report[/]")
