"""``data create``, ``data put``, ``data ls``, ``data get``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weft.commands import prepare
from weft.commands.common import JsonOption, client_of
from weft.resources.data import DEFAULT_STORE, Place
from weft.ui.console import say, show, show_json, tell
from weft.ui.jobs import table
from weft.ui.progress import bar
from weft.ui.times import moment
from weft.words import count, size

app = typer.Typer(no_args_is_help=True, help="Upload, list, download and prepare data.")
app.add_typer(prepare.app, name="prepare")

_FORM = "DATASTORE:CONTAINER/PREFIX. Without DATASTORE, the data store 'default'."


@app.command("create")
def create(
    ctx: typer.Context,
    place: Annotated[str, typer.Argument(metavar="[DATASTORE:]CONTAINER", help=_FORM, show_default=False)],
) -> None:
    """Create a container, for example for results.

    If the container exists already, the command does nothing.
    """
    where = Place.parse(place)
    client_of(ctx).data.create(where)
    say(f"[green]✓[/] {escape(where.store)}:{escape(where.container)}")


@app.command("put")
def put(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A file or a folder.", show_default=False)],
    place: Annotated[str, typer.Argument(metavar="PLACE", help=_FORM, show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Upload a file or a folder.

    The files of a folder go under PREFIX. A single file goes to PREFIX/name
    if PREFIX is empty or ends with a slash, and otherwise to PREFIX itself.
    The command creates the container if it is missing.
    """
    where = Place.parse(place)
    data = client_of(ctx).data
    items = data.plan_put(source, where)
    total = sum(item.size for item in items)
    with bar(f"to {escape(str(where))}", total) as report:
        data.put(source, where, progress=report, items=items)
    if as_json:
        show_json([{"key": item.key, "size": item.size} for item in items])
    else:
        say(f"[green]✓[/] {count(len(items), 'file')}, {size(total)} → {escape(str(where))}")


@app.command("ls")
def ls(
    ctx: typer.Context,
    place: Annotated[str, typer.Argument(metavar="PLACE", help=_FORM, show_default=False)] = f"{DEFAULT_STORE}:",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of objects.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List objects, or the containers if PLACE names no container."""
    where = Place.parse(place)
    data = client_of(ctx).data
    if not where.container:
        names = data.containers(where.store)
        if as_json:
            show_json(names)
        else:
            for name in names:
                tell(f"{where.store}:{name}")
        return
    objects = list(data.objects(where, limit=limit))
    if as_json:
        show_json([dict(stored.raw) for stored in objects])
        return
    if not objects:
        say(f"there is nothing at {escape(str(where))}")
        return
    made = table("SIZE", "MODIFIED", "KEY", numbers=("SIZE",))
    made.columns[2].no_wrap = False
    made.columns[2].overflow = "fold"
    for stored in objects:
        made.add_row(size(stored.size), moment(stored.modified), escape(stored.key))
    show(made)


@app.command("get")
def get(
    ctx: typer.Context,
    place: Annotated[str, typer.Argument(metavar="PLACE", help=_FORM, show_default=False)],
    target: Annotated[
        Path,
        typer.Argument(metavar="TARGET", help="A file or a folder. Default: the current folder.", show_default=False),
    ] = Path(),
) -> None:
    """Download one object, or all objects under a prefix.

    An interrupted download continues where it stopped.
    """
    where = Place.parse(place)
    data = client_of(ctx).data
    items = data.plan_get(where, target)
    total = sum(item.size for item in items)
    with bar(f"from {escape(str(where))}", total) as report:
        data.get(where, target, progress=report, items=items)
    to = items[0].path if len(items) == 1 else target
    say(f"[green]✓[/] {count(len(items), 'file')}, {size(total)} → {escape(str(to))}")
