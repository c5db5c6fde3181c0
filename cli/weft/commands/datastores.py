"""``datastores list|add|remove``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.asking import ask_secret
from weft.commands.common import JsonOption, client_of
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table

app = typer.Typer(no_args_is_help=True, help="Data stores (S3) that the server keeps the credentials of.")


@app.command("list")
def list_stores(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the data stores."""
    stores = client_of(ctx).datastores.list()
    if as_json:
        show_json([dict(one.raw) for one in stores])
    elif not stores:
        say("no data stores yet; `weft datastores add` keeps one")
    else:
        made = table("NAME", "ENDPOINT", "REGION", "USER NAME")
        for one in stores:
            made.add_row(one.name, escape(one.endpoint), one.region or "", escape(one.user_name or ""))
        show(made)


@app.command("add")
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="What manifests call it: `datastore: NAME`.", show_default=False)],
    endpoint: Annotated[str, typer.Option(help="Its URL, such as https://s3.eu-central-1.amazonaws.com.")],
    user_name: Annotated[str, typer.Option("--user-name", help="The access key.")],
    region: Annotated[str | None, typer.Option(help="Where the store wants to know it.")] = None,
    ca: Annotated[
        typer.FileText | None, typer.Option(help="A file with the certificates (PEM) of a private authority.")
    ] = None,
    check: Annotated[bool, typer.Option(help="Let the server try the credentials first.")] = True,
) -> None:
    """Keep an S3 store's address and credentials on the server.

    The password (secret key) is asked for, or read from stdin: it is never an argument.
    """
    password = ask_secret("Password (secret key)")
    client_of(ctx).datastores.add(
        name,
        endpoint=endpoint,
        user_name=user_name,
        password=password,
        region=region,
        ca=ca.read() if ca else None,
        check=check,
    )
    say(f"[green]✓[/] data store {escape(name)} is kept" + (", its credentials work" if check else ""))


@app.command("remove")
def remove(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Forget a data store; what is in it stays."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Forget the data store {name} and its credentials?", abort=True, err=True)
    client_of(ctx).datastores.remove(name)
    say(f"[green]✓[/] data store {escape(name)} is forgotten")
