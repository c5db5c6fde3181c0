"""``datastores list|add|remove``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.common import JsonOption, client_of
from weft.commands.prompts import ask_secret
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table

app = typer.Typer(no_args_is_help=True, help="Manage the data stores (S3) whose credentials the server keeps.")


@app.command("list")
def list_stores(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the data stores."""
    stores = client_of(ctx).datastores.list()
    if as_json:
        show_json([dict(store.raw) for store in stores])
    elif not stores:
        say("no data stores yet; `weft datastores add` adds one")
    else:
        made = table("NAME", "ENDPOINT", "REGION", "USER NAME")
        for store in stores:
            keys = "(temporary keys)" if store.user_name is None else escape(store.user_name)
            made.add_row(store.name, escape(store.endpoint), store.region or "", keys)
        show(made)


@app.command("add")
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name in manifests: `datastore: NAME`.", show_default=False)],
    endpoint: Annotated[str, typer.Option(help="URL of the store, such as https://s3.eu-central-1.amazonaws.com.")],
    user_name: Annotated[str, typer.Option("--user-name", help="The access key.")],
    region: Annotated[str | None, typer.Option(help="Region, if the store needs it.")] = None,
    ca: Annotated[
        typer.FileText | None, typer.Option(help="File with the certificates (PEM) of a private authority.")
    ] = None,
    check: Annotated[bool, typer.Option(help="Let the server test the credentials first.")] = True,
) -> None:
    """Store the address and the credentials of an S3 store on the server.

    The command asks for the password (secret key), or reads it from stdin. It is never an argument.
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
    say(f"[green]✓[/] data store {escape(name)} added" + (", its credentials work" if check else ""))


@app.command("remove")
def remove(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
) -> None:
    """Remove a data store from the server; the data in it stays."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Remove the data store {name} and its credentials from the server?", abort=True, err=True)
    client_of(ctx).datastores.remove(name)
    say(f"[green]✓[/] data store {escape(name)} removed")
