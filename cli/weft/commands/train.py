"""``init``, ``validate``, ``train``, ``rerun``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weft import starter, words
from weft.bundle import Bundle, open_bundle
from weft.client import Client, read_manifest
from weft.commands.common import JobArgument, JsonOption, client_of, overrides
from weft.commands.following import follow_to_the_end
from weft.errors import BundleError, InvalidManifest
from weft.exits import ExitCode
from weft.resources.jobs import Job
from weft.ui import cells, problems
from weft.ui.console import say, show_json, show_json_lines
from weft.ui.progress import bar

app = typer.Typer()

_LARGE = 4 << 20

ManifestArgument = Annotated[Path, typer.Argument(metavar="MANIFEST", help="The YAML file.", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a value of the manifest, by path: learners=4, framework.command='…'."
    ),
]
NameOption = Annotated[str | None, typer.Option("--name", help="Change the name of the job.")]
LearnersOption = Annotated[int | None, typer.Option("--learners", min=1, help="Change the number of learners.")]
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


@app.command("train")
def train(
    ctx: typer.Context,
    manifest: ManifestArgument,
    code: Annotated[
        Path | None,
        typer.Argument(metavar="DIR|ZIP", help="The code. Default: the manifest's folder.", show_default=False),
    ] = None,
    follow: FollowOption = False,
    settings: SetOption = None,
    learners: LearnersOption = None,
    name: NameOption = None,
    no_code: Annotated[bool, typer.Option("--no-code", help="Send no code, because the command needs none.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a training job: a manifest, and the folder or zip of its code.

    If the code is a folder, files that .gitignore or .weftignore excludes are
    left out, and so is the manifest itself. Code that the server already has
    is not sent again.

    Prints the job's id. With --follow, also prints the job's log, and the
    exit code is the job's outcome.
    """
    if no_code and code is not None:
        raise typer.BadParameter("leave out the code or --no-code", param_hint="--no-code")
    values = overrides(settings) | ({"name": name} if name else {}) | ({"learners": str(learners)} if learners else {})
    client = client_of(ctx)
    text, _ = read_manifest(manifest)
    try:
        if no_code:
            job = client.jobs.submit(text, None, values)
        else:
            job = _submit_with_code(client, manifest, text, code or manifest.parent, values)
    except InvalidManifest as error:
        problems.explain(str(manifest), text, error.problems, error.detail)
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

    Prints the new job's id.
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


def _submit_with_code(client: Client, manifest: Path, text: str, code: Path, values: dict[str, str]) -> Job:
    with open_bundle(code, leave_out=manifest) as bundle:
        if bundle is None:
            say(f"[dim]{escape(str(code))} has no code, so none is sent[/]")
            return client.jobs.submit(text, None, values)
        if bundle.size > _LARGE:
            # Check the manifest before many bytes are sent.
            client.validate(manifest, values)
        return client.jobs.submit(text, _send(client, bundle, code), values)


def _send_code(client: Client, code: Path) -> str:
    """Send other code for a job. As with `train`, a manifest is left out, because it may contain credentials."""
    manifest = next((code / name for name in ("manifest.yml", "manifest.yaml") if (code / name).is_file()), None)
    with open_bundle(code, leave_out=manifest) as bundle:
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
