"""``models list|show|note|download|promote|demote|register|delete``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weft.archive import unpack
from weft.commands.common import JobArgument, JsonOption, client_of
from weft.errors import WeftError
from weft.resources.registry import split_reference
from weft.ui.console import say, show, show_json
from weft.ui.models import model_panel, model_table, version_panel
from weft.ui.progress import bar
from weft.words import count, size

app = typer.Typer(no_args_is_help=True, help="Manage the models that jobs have trained: versions, lineage, stages.")


def complete_model(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names, and versions after an @, for the shell's completion; empty if the server does not answer."""
    name, at, begun = incomplete.partition("@")
    try:
        models = client_of(ctx).models
        if not at:
            return [
                (model.name, count(model.versions, "version")) for model in models.list() if model.name.startswith(name)
            ]
        known = {"latest": "", **{stage: f"version {number}" for stage, number in models.get(name).stages.items()}}
        known |= {str(version.version): version.job for version in models.versions(name)}
    except WeftError:
        return []
    return [(f"{name}@{version}", words) for version, words in known.items() if version.startswith(begun)]


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@VERSION]",
        help="A model. VERSION is a number, a stage, or latest.",
        autocompletion=complete_model,
        show_default=False,
    ),
]
VersionArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME@VERSION",
        help="VERSION is a number, a stage, or latest (default).",
        autocompletion=complete_model,
        show_default=False,
    ),
]


@app.command("list")
def list_models(
    ctx: typer.Context,
    query: Annotated[str | None, typer.Option("--q", "-q", help="Only models with this text in the name.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the models, by name."""
    models = list(client_of(ctx).models.list(q=query))
    if as_json:
        show_json([dict(model.raw) for model in models])
    elif not models:
        hint = "with `training_results: {…, model: NAME}` in its manifest, a job registers its model"
        say("no such models" if query else f"no models yet; {hint}")
    else:
        show(model_table(models))


@app.command("show")
def show_model(ctx: typer.Context, model: ModelArgument, as_json: JsonOption = False) -> None:
    """Show a model's versions and stages, or the origin of one version."""
    models = client_of(ctx).models
    if "@" in model:
        version = models.version(model)
        if as_json:
            show_json(dict(version.raw))
        else:
            show(version_panel(version))
        return
    found, versions = models.get(model), list(models.versions(model))
    if as_json:
        show_json({**found.raw, "version_list": [dict(version.raw) for version in versions]})
    else:
        show(model_panel(found, versions))


@app.command("download")
def download(
    ctx: typer.Context,
    model: VersionArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File or folder to create.", show_default=False)
    ] = None,
    unpacked: Annotated[bool, typer.Option("--unpack", help="Create a folder instead of a zip.")] = False,
) -> None:
    """Download a version's files.

    Creates a zip (with --unpack, a folder) in the current folder, with the name of the version, and prints its path.
    """
    models = client_of(ctx).models
    version = models.version(model)
    default = f"{version.model}-{version.version}" + ("" if unpacked else ".zip")
    target = output or Path(default)
    if target.is_dir() and not unpacked:
        target /= default
    total = version.files.get("bytes")
    if not unpacked:
        with bar(escape(target.name), total) as report:
            models.download(version.reference, target, report)
        say(f"[green]✓[/] {version.reference}, {size(target.stat().st_size)}")
    else:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise WeftError(f"{target} exists already and is not an empty folder; choose another --output")
        with tempfile.TemporaryDirectory(prefix="weft-download-") as scratch:
            packed = Path(scratch) / "model.zip"
            with bar(escape(target.name), total) as report:
                models.download(version.reference, packed, report)
            number = unpack(packed, target)
        say(f"[green]✓[/] {version.reference}, {count(number, 'file')}")
    print(target)


@app.command("register")
def register(
    ctx: typer.Context,
    job: JobArgument,
    name: Annotated[str, typer.Argument(help="Name of the model. A new name creates the model.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Make a completed job's results the next version of a model.

    Prints the version. With `training_results: {…, model: NAME}` in the manifest, this happens automatically.
    """
    client = client_of(ctx)
    version = client.models.register(client.job(job).id, name)
    if as_json:
        show_json(dict(version.raw))
    else:
        print(version.reference)


@app.command("note")
def note(
    ctx: typer.Context,
    model: VersionArgument,
    text: Annotated[
        str, typer.Argument(help="The notes, as Markdown; - reads them from standard input.", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Replace the notes of a version, which its page and `weft models show` show.

    An empty text removes the notes.
    """
    found = client_of(ctx).models.edit(model, notes=sys.stdin.read() if text == "-" else text)
    if as_json:
        show_json(dict(found.raw))
    else:
        say(f"[green]✓[/] the notes of {found.reference} are {'changed' if found.notes else 'removed'}")


@app.command("promote")
def promote(
    ctx: typer.Context,
    model: VersionArgument,
    stage: Annotated[str, typer.Argument(help="Name of the stage, such as production or staging.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Move a stage to a version: from now on, NAME@STAGE means this version.

    Jobs that were submitted before keep their version.
    """
    found = client_of(ctx).models.promote(model, stage)
    if as_json:
        show_json(dict(found.raw))
    else:
        say(f"[green]✓[/] {found.name}@{escape(stage)} is version {found.stages[stage]}")


@app.command("demote")
def demote(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(metavar="NAME@STAGE", autocompletion=complete_model, show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Remove a stage; its version stays."""
    name, stage = split_reference(model)
    found = client_of(ctx).models.demote(name, stage)
    if as_json:
        show_json(dict(found.raw))
    else:
        say(f"[green]✓[/] {found.name} no longer has the stage {escape(stage)}")


@app.command("delete")
def delete(
    ctx: typer.Context,
    model: ModelArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
) -> None:
    """Delete a version, or a model with all of its versions.

    The server refuses this while a version has a stage, or while an unfinished job starts from it. Files in your own
    data store stay there.
    """
    models = client_of(ctx).models
    if "@" in model:
        version = models.version(model)
        what, name, number = version.reference, version.model, version.version
    else:
        found = models.get(model)
        what, name, number = f"{found.name} with {count(found.versions, 'version')}", found.name, None
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("there is no terminal to ask; use --yes", param_hint="--yes")
        typer.confirm(f"Delete {what}?", abort=True, err=True)
    models.delete(name, number)
    say(f"[green]✓[/] {what} deleted")
