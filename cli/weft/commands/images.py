"""``images list``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.common import JsonOption, client_of
from weft.ui.console import say, show, show_json
from weft.ui.images import image_table

app = typer.Typer(no_args_is_help=True, help="Images that jobs run in.")


@app.callback()
def images() -> None:
    """Images that jobs run in."""


@app.command("list")
def list_images(
    ctx: typer.Context,
    framework: Annotated[
        str | None, typer.Option("--framework", "-f", help="Only of this framework.", metavar="NAME")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the images that manifests ask for by framework and version.

    Below ENGINES stands which engines have it: built on this machine, pulled to a node. One that is not listed builds
    or pulls it when a job first asks for it; a ? behind it means that it can't tell.
    """
    found = [one for one in client_of(ctx).catalogue() if framework in (None, *one["frameworks"])]
    if as_json:
        show_json([dict(one) for one in found])
    elif not found:
        say(f"no image serves framework {escape(framework or '')}")
    else:
        show(image_table(found, framework))
