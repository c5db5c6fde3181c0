"""``engines``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from weft import words
from weft.commands.common import JsonOption, client_of
from weft.errors import WeftError
from weft.ui.console import say, show, show_json
from weft.ui.engines import engine_panel, engine_table

app = typer.Typer()


def complete_engine(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The engines, for the shell's completion; empty if the server does not answer."""
    try:
        found = client_of(ctx).engines()
    except WeftError:
        return []
    return [(engine.name, engine.type) for engine in found if engine.name.startswith(incomplete)]


@app.command("engines")
def engines(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[ENGINE]",
            help="Show only this engine, with its nodes and its queue.",
            autocompletion=complete_engine,
            show_default=False,
        ),
    ] = None,
    forgive: Annotated[
        str | None,
        typer.Option(
            metavar="NODE",
            help="Let this node of the engine, which jobs blame, get learners again. For administrators.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the engines that run jobs, how busy they are, and which jobs wait.

    With the name of an engine, the command shows the engine's nodes, and the project's jobs that wait for the engine,
    in the order of the queue and with the reasons why they wait.
    """
    client = client_of(ctx)
    if forgive is not None:
        if name is None:
            raise typer.BadParameter("name the engine, too: weft engines ENGINE --forgive NODE")
        forgiven = client.forgive_node(name, forgive)
        say(f"[green]✓[/] node {escape(forgive)} is forgiven: {words.count(forgiven, 'attempt')} blamed it")
        return
    if name is not None:
        engine = client.engine(name)
        if as_json:
            show_json(dict(engine.raw))
        else:
            show(engine_panel(engine))
        return
    found = client.engines()
    if as_json:
        show_json([dict(engine.raw) for engine in found])
    else:
        show(engine_table(found))
