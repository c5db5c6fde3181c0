"""``engines``."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.commands.common import JsonOption, client_of
from weft.errors import WeftError
from weft.ui.console import show, show_json
from weft.ui.engines import engine_panel, engine_table

app = typer.Typer()


def complete_engine(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """For the shell's completion; nothing when the server is away."""
    try:
        found = client_of(ctx).engines()
    except WeftError:
        return []
    return [(one.name, one.type) for one in found if one.name.startswith(incomplete)]


@app.command("engines")
def engines(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[ENGINE]",
            help="One engine, with its nodes and its queue.",
            autocompletion=complete_engine,
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show where jobs can run, how busy it is there, and what waits.

    With the name of an engine: its nodes, and the jobs of the project that wait for it, in the order of its queue and
    with the reason of each.
    """
    client = client_of(ctx)
    if name is not None:
        engine = client.engine(name)
        if as_json:
            show_json(dict(engine.raw))
        else:
            show(engine_panel(engine))
        return
    found = client.engines()
    if as_json:
        show_json([dict(one.raw) for one in found])
    else:
        show(engine_table(found))
