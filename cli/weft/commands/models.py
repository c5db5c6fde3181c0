"""``models list|show|download|promote|demote|register|delete``."""

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
from weft.ui.words import count, size

app = typer.Typer(no_args_is_help=True, help="Models that jobs have trained: versions, lineage, stages.")


def complete_model(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names, and behind an @ the versions, for the shell's completion; nothing when the server is away."""
    name, at, begun = incomplete.partition("@")
    try:
        models = client_of(ctx).models
        if not at:
            return [(one.name, count(one.versions, "version")) for one in models.list() if one.name.startswith(name)]
        known = {"latest": "", **{stage: f"version {number}" for stage, number in models.get(name).stages.items()}}
        known |= {str(one.version): one.job for one in models.versions(name)}
    except WeftError:
        return []
    return [(f"{name}@{version}", words) for version, words in known.items() if version.startswith(begun)]


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@VERSION]",
        help="A model; VERSION is a number, a stage, or latest.",
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
    query: Annotated[str | None, typer.Option("--q", "-q", help="Only with this text in the name.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the models, by name."""
    models = list(client_of(ctx).models.list(q=query))
    if as_json:
        show_json([dict(one.raw) for one in models])
    elif not models:
        hint = "`training_results: {…, model: NAME}` in a manifest registers what a job trains"
        say("no such models" if query else f"no models yet; {hint}")
    else:
        show(model_table(models))


@app.command("show")
def show_model(ctx: typer.Context, model: ModelArgument, as_json: JsonOption = False) -> None:
    """Show a model's versions and stages, or with @VERSION where that version came from."""
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
        show_json({**found.raw, "version_list": [dict(one.raw) for one in versions]})
    else:
        show(model_panel(found, versions))


@app.command("download")
def download(
    ctx: typer.Context,
    model: VersionArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File or folder to make.", show_default=False)
    ] = None,
    unpacked: Annotated[bool, typer.Option("--unpack", help="Make a folder instead of a zip.")] = False,
) -> None:
    """Download a version's files.

    Makes a zip in the current folder, named after the version; with --unpack a folder. Prints the path.
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
            raise WeftError(f"{target} is there already, and no empty folder; --output names another")
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
    name: Annotated[str, typer.Argument(help="The model; made if it is new.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Make a completed job's results the next version of a model.

    `training_results: {…, model: NAME}` in a manifest does this by itself. Prints the version.
    """
    client = client_of(ctx)
    version = client.models.register(client.job(job).id, name)
    if as_json:
        show_json(dict(version.raw))
    else:
        print(version.reference)


@app.command("promote")
def promote(
    ctx: typer.Context,
    model: VersionArgument,
    stage: Annotated[str, typer.Argument(help="Such as production or staging.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Move a stage to a version: from then on NAME@STAGE means it.

    Jobs that were submitted before keep the version that it meant then.
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
    """Take a stage away; the version that it was at stays."""
    name, stage = split_reference(model)
    found = client_of(ctx).models.demote(name, stage)
    if as_json:
        show_json(dict(found.raw))
    else:
        say(f"[green]✓[/] {found.name} has no stage {escape(stage)} any more")


@app.command("delete")
def delete(
    ctx: typer.Context,
    model: ModelArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Delete a version by its number, or a model with all of its versions.

    Refused while a stage is at it, or a job that has not ended starts from it. Files in a data store of your own stay.
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
            raise typer.BadParameter("there is no terminal to ask at: give --yes", param_hint="--yes")
        typer.confirm(f"Delete {what}?", abort=True, err=True)
    models.delete(name, number)
    say(f"[green]✓[/] {what} is deleted")
