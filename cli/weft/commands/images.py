"""``images list``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.common import JsonOption, client_of
from weft.ui.console import say, show, show_json
from weft.ui.images import image_table

app = typer.Typer(no_args_is_help=True, help="List the images that jobs run in.")


@app.callback()
def images() -> None:
    """List the images that jobs run in."""


@app.command("list")
def list_images(
    ctx: typer.Context,
    framework: Annotated[
        str | None, typer.Option("--framework", "-f", help="Only images of this framework.", metavar="NAME")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the images that manifests select by framework and version.

    The column ENGINES names the engines that have the image: built on the machine, or pulled to a node. Other engines
    build or pull the image when the first job needs it. A ? after an engine means that it can't tell.
    """
    found = [image for image in client_of(ctx).catalogue() if framework in (None, *image["frameworks"])]
    if as_json:
        show_json([dict(image) for image in found])
    elif not found:
        say(f"there is no image for the framework {escape(framework or '')}")
    else:
        show(image_table(found, framework))
