"""``init``, ``validate``, ``train``, ``rerun``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weft import starter, words
from weft.client import read_manifest
from weft.commands.common import JobArgument, JsonOption, client_of, overrides
from weft.commands.source import (
    AfterOption,
    ArgumentsArgument,
    CodeArgument,
    CpusOption,
    FrameworkOption,
    GpusOption,
    LearnersOption,
    MemoryOption,
    NameOption,
    NoCodeOption,
    ScriptCommand,
    SetOption,
    SourceArgument,
    WithOption,
    added_packages,
    predecessors,
    read_source,
    say_unused,
)
from weft.commands.submitting import FollowOption, SaveOption, save_manifest, send_code, show_submitted, submit
from weft.errors import InvalidManifest
from weft.exits import ExitCode
from weft.ui import cells, problems
from weft.ui.console import say, show_json

app = typer.Typer()

ManifestArgument = Annotated[Path, typer.Argument(metavar="MANIFEST", help="The YAML file.", show_default=False)]


@app.command("init")
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for the files; created if it is missing.", show_default=False)
    ] = Path(),
) -> None:
    """Write a commented starter manifest and training script.

    The command never overwrites existing files.
    """
    written = starter.write(folder)
    for path in written:
        say(f"[green]✓[/] {escape(str(path))}")
    manifest = written[0]
    say(f"\nTrain it:  [command]weft train {escape(str(manifest))} --follow[/]")


@app.command("validate")
def validate(
    ctx: typer.Context, manifest: ManifestArgument, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """Check a manifest without submitting it."""
    client = client_of(ctx)
    text, _ = read_manifest(manifest)
    try:
        valid = client.validate(manifest, overrides(settings))
    except InvalidManifest as error:
        if as_json:
            show_json({"valid": False, "problems": [vars(problem) for problem in error.problems]})
        else:
            problems.explain(str(manifest), text, error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None
    if as_json:
        show_json({"valid": True, "manifest": dict(valid.manifest), "notes": list(valid.notes)})
        return
    checked = valid.manifest
    framework = checked.get("framework") or {}
    learners = words.count(int(checked.get("learners") or 1), "learner")
    say(f"[bold green]✓[/] [bold]{escape(str(manifest))}[/] is valid")
    say(
        f"  {escape(str(checked.get('name', '')))}: {learners} × {cells.resources(checked.get('resources') or {})}, "
        f"{framework.get('name')} {framework.get('version') or ''}, launcher {framework.get('launcher')}, "
        f"engine {checked.get('engine')}"
    )
    for note in valid.notes:
        say(f"  [yellow]note:[/] {escape(note)}")


@app.command("train", cls=ScriptCommand)
def train(
    ctx: typer.Context,
    manifest: SourceArgument,
    code: CodeArgument = None,
    arguments: ArgumentsArgument = None,
    follow: FollowOption = False,
    settings: SetOption = None,
    learners: LearnersOption = None,
    gpus: GpusOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    framework: FrameworkOption = None,
    packages: WithOption = None,
    name: NameOption = None,
    after: AfterOption = None,
    no_code: NoCodeOption = False,
    save: SaveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a training job: a manifest or a script, and the folder or zip of its code.

    For a script, the command makes the manifest. The job has the name of the
    script and runs it in its folder, with the arguments after `--`. Example:
    `weft train train.py --learners 2 --gpus 1 -- --lr 0.1`

    If the code is a folder, files that .gitignore or .weftignore excludes are
    left out, and so is the manifest itself. Code that the server already has
    is not sent again.

    Prints the job's id. With --follow, also prints the job's log, and the
    exit code is the job's outcome.
    """
    settings = [*(settings or ()), *predecessors(after)]
    source = read_source(
        manifest,
        code,
        arguments,
        settings=settings,
        keys={"name": name, "learners": learners, "cpus": cpus, "gpus": gpus, "memory": memory},
        framework=framework,
        packages=packages,
        no_code=no_code,
    )
    if save is not None:
        if follow or as_json or settings:
            others = "--follow, --json, --set and --after"
            raise typer.BadParameter(f"it submits nothing; leave out {others}", param_hint="--save")
        save_manifest(source, save)
        return
    say_unused(source)
    client = client_of(ctx)
    try:
        job = submit(client, source)
    except InvalidManifest as error:
        problems.explain(source.title, source.text, error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None
    show_submitted(client, job, follow=follow, as_json=as_json)


@app.command("rerun")
def rerun(
    ctx: typer.Context,
    job: JobArgument,
    settings: SetOption = None,
    packages: WithOption = None,
    from_checkpoint: Annotated[
        bool, typer.Option("--from-checkpoint", help="Start from a copy of the job's last complete checkpoint.")
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="CHECKPOINT", help="Start from a copy of this checkpoint; `weft checkpoints JOB` lists them."
        ),
    ] = None,
    code: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|ZIP",
            help="Code to use instead of the job's code; a manifest.yml in it is left out.",
            show_default=False,
        ),
    ] = None,
    follow: FollowOption = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a job again, with the same manifest and code.

    --code sends other code, --set changes the manifest, and --with adds
    packages to those that the manifest names. Prints the new job's id.
    """
    client = client_of(ctx)
    begins_with = checkpoint or from_checkpoint
    try:
        old = client.job(job)
        sha256 = send_code(client, code) if code else None
        values = overrides(settings)
        if packages:
            listed = (old.manifest.get("framework") or {}).get("packages") or ()
            values |= added_packages(packages, len(listed))
        new = old.rerun(values, from_checkpoint=begins_with, code_sha256=sha256)
    except InvalidManifest as error:
        problems.explain(f"the manifest of {job}", "", error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None
    show_submitted(client, new, follow=follow, as_json=as_json)
