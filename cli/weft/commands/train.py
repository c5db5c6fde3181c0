"""``init``, ``validate``, ``train``, ``rerun``."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weft import starter, words
from weft.bundle import Bundle, manifest_in, open_bundle
from weft.client import Client, read_manifest
from weft.commands.common import JobArgument, JsonOption, client_of, overrides
from weft.commands.following import follow_to_the_end
from weft.commands.source import (
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
    Source,
    SourceArgument,
    WithOption,
    read_source,
    say_unused,
)
from weft.errors import BundleError, InvalidManifest, WeftError
from weft.exits import ExitCode
from weft.resources.jobs import Job
from weft.ui import cells, problems
from weft.ui.console import say, show_json, show_json_lines
from weft.ui.progress import bar

app = typer.Typer()

_LARGE = 4 << 20

ManifestArgument = Annotated[Path, typer.Argument(metavar="MANIFEST", help="The YAML file.", show_default=False)]
FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Show the states and the log until the job has ended.")
]


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
    no_code: NoCodeOption = False,
    save: Annotated[
        str | None,
        typer.Option(
            "--save",
            metavar="[=FILE]",
            help="For a script: write its manifest to a file, and submit nothing. Default: manifest.yml in the folder "
            "of the code.",
        ),
    ] = None,
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
            raise typer.BadParameter("it submits nothing; leave out --follow, --json and --set", param_hint="--save")
        _save(source, Path(save) if save else None)
        return
    say_unused(source)
    client = client_of(ctx)
    try:
        job = _submit(client, source)
    except InvalidManifest as error:
        problems.explain(source.title, source.text, error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None
    _submitted(client, job, follow=follow, as_json=as_json)


@app.command("rerun")
def rerun(
    ctx: typer.Context,
    job: JobArgument,
    settings: SetOption = None,
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

    --code sends other code, --set changes the manifest. Prints the new job's
    id.
    """
    client = client_of(ctx)
    begins_with = checkpoint or from_checkpoint
    try:
        old = client.job(job)
        sha256 = _send_code(client, code) if code else None
        new = old.rerun(overrides(settings), from_checkpoint=begins_with, code_sha256=sha256)
    except InvalidManifest as error:
        problems.explain(f"the manifest of {job}", "", error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None
    _submitted(client, new, follow=follow, as_json=as_json)


def _save(source: Source, file: Path | None) -> None:
    """Write the manifest of a script, and print the command that submits it."""
    if source.script is None:
        raise typer.BadParameter(f"{source.title} is a manifest; only a script needs one", param_hint="--save")
    target = file or source.script.code / "manifest.yml"
    shown = target if file else Path(os.path.relpath(target))
    try:
        with target.open("x", encoding="utf-8") as opened:
            opened.write(source.text)
    except FileExistsError:
        raise WeftError(f"{shown} is there already; nothing was written. --save=FILE names another file") from None
    except OSError as error:
        raise WeftError(f"{shown} can't be written: {error.strerror}") from error
    code = [] if target.absolute().parent == source.script.code else [os.path.relpath(source.script.code)]
    say(f"[green]✓[/] {escape(str(shown))}")
    say(f"\nTrain it:  [command]weft train {escape(shlex.join([str(shown), *code]))} --follow[/]")


def _submit(client: Client, source: Source) -> Job:
    if source.code is None:
        return client.jobs.submit(source.text, None, source.values)
    with open_bundle(source.code, leave_out=source.leave_out) as bundle:
        if bundle is None:
            say(f"[dim]{escape(str(source.code))} has no code, so none is sent[/]")
            return client.jobs.submit(source.text, None, source.values)
        if bundle.size > _LARGE:
            # Check the manifest before many bytes are sent.
            client.validate(source.manifest, source.values)
        return client.jobs.submit(source.text, _send(client, bundle, source.code), source.values)


def _send_code(client: Client, code: Path) -> str:
    with open_bundle(code, leave_out=manifest_in(code)) as bundle:
        if bundle is None:
            raise BundleError(f"{code} has no code")
        return _send(client, bundle, code)


def _send(client: Client, bundle: Bundle, code: Path) -> str:
    if bundle.warning:
        say(f"[yellow]{escape(bundle.warning)}[/]")
    with bar("sending code", bundle.size) as report:
        sent = client.send_code(bundle, report)
    what = words.count(bundle.files, "file") if bundle.files is not None else escape(code.name)
    say(f"[dim]code: {what}, {words.size(bundle.size)}, {'sent' if sent else 'unchanged, not sent again'}[/]")
    return bundle.sha256


def _submitted(client: Client, job: Job, *, follow: bool, as_json: bool) -> None:
    if as_json and follow:
        show_json_lines([{"type": "job", **job.raw}])
    elif as_json:
        show_json(dict(job.raw))
    else:
        print(job.id, flush=True)
    if follow:
        follow_to_the_end(client, job, as_json=as_json)
    elif sys.stderr.isatty() and not as_json:
        say(f"[dim]{escape(job.name)} is queued; [/][command]weft logs --follow {job.id}[/]")
