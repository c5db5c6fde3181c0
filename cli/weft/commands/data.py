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
from weft.ui.words import count, moment, size

app = typer.Typer(no_args_is_help=True, help="Put data into a data store, list it, get it.")
app.add_typer(prepare.app, name="prepare")

_FORM = "DATASTORE:CONTAINER/PREFIX; without DATASTORE: the one named 'default'."


@app.command("create")
def create(
    ctx: typer.Context,
    place: Annotated[str, typer.Argument(metavar="[DATASTORE:]CONTAINER", help=_FORM, show_default=False)],
) -> None:
    """Make a container, for results that go there.

    One that is there already is left as it is.
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

    A folder's files go under PREFIX; a file to PREFIX/name when PREFIX is
    empty or ends with a slash, else to exactly PREFIX.
    The container is made if it is missing.
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
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List objects, or the containers when PLACE names none."""
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
        show_json([dict(one.raw) for one in objects])
        return
    if not objects:
        say(f"nothing at {escape(str(where))}")
        return
    made = table("SIZE", "MODIFIED", "KEY", numbers=("SIZE",))
    made.columns[2].no_wrap = False
    made.columns[2].overflow = "fold"
    for one in objects:
        made.add_row(size(one.size), moment(one.modified), escape(one.key))
    show(made)


@app.command("get")
def get(
    ctx: typer.Context,
    place: Annotated[str, typer.Argument(metavar="PLACE", help=_FORM, show_default=False)],
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="A file, or a folder; default: this one.", show_default=False)
    ] = Path(),
) -> None:
    """Download one object, or all under a prefix.

    What an interrupted download left is gone on with.
    """
    where = Place.parse(place)
    data = client_of(ctx).data
    items = data.plan_get(where, target)
    total = sum(item.size for item in items)
    with bar(f"from {escape(str(where))}", total) as report:
        data.get(where, target, progress=report, items=items)
    to = items[0].path if len(items) == 1 else target
    say(f"[green]✓[/] {count(len(items), 'file')}, {size(total)} → {escape(str(to))}")
