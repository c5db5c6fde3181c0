"""``views list|show|delete``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.text import Text

from weft.commands.common import JsonOption, client_of
from weft.errors import WeftError
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.times import ago

app = typer.Typer(no_args_is_help=True, help="List, show and delete saved lists of jobs.")


def complete_view(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of views, for the shell's completion; empty if the server does not answer."""
    try:
        views = client_of(ctx).views.list()
    except WeftError:
        return []
    return [(view.name, view.query) for view in views if view.name.startswith(incomplete)]


NameArgument = Annotated[str, typer.Argument(metavar="NAME", show_default=False, autocompletion=complete_view)]


@app.command("list")
def list_views(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the saved views of the project; `weft list --view NAME` shows the jobs of a view."""
    views = client_of(ctx).views.list()
    if as_json:
        show_json([dict(view.raw) for view in views])
    elif not views:
        say("no views yet; the page Jobs saves its filters, order and columns as a view")
    else:
        made = table("NAME", "QUERY", "USER", "SAVED")
        for view in views:
            made.add_row(Text(view.name), Text(view.query), Text(view.user), ago(view.updated_at))
        show(made)


@app.command("show")
def show_view(ctx: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """Show what a saved view filters, how it sorts, and its columns."""
    view = client_of(ctx).views.get(name)
    if as_json:
        show_json(dict(view.raw))
        return
    made = table("KEY", "VALUE")
    for key, values in view.search.items():
        for value in values:
            made.add_row(Text(key), Text(value))
    show(made)


@app.command("delete")
def delete_view(ctx: typer.Context, name: NameArgument) -> None:
    """Delete a saved view, for all members of the project."""
    client_of(ctx).views.delete(name)
    say(f"[green]✓[/] view {escape(name)} deleted")
