"""``secrets list|set|remove``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.common import JsonOption, client_of
from weft.commands.prompts import ask_secret
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.times import ago

app = typer.Typer(no_args_is_help=True, help="Manage the secrets that manifests name and learners receive.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@app.command("list")
def list_secrets(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the names of the secrets; the server never returns values."""
    secrets = client_of(ctx).secrets.list()
    if as_json:
        show_json([dict(secret.raw) for secret in secrets])
    elif not secrets:
        say("no secrets yet; `weft secrets set NAME` adds one")
    else:
        made = table("NAME", "CREATED", "UPDATED")
        for secret in secrets:
            made.add_row(escape(secret.name), ago(secret.created_at), ago(secret.updated_at))
        show(made)


@app.command("set")
def set_secret(ctx: typer.Context, name: NameArgument) -> None:
    """Store a secret on the server, or change its value.

    The command asks for the value, or reads it from stdin. It is never an argument.
    """
    client_of(ctx).secrets.set(name, ask_secret(f"Value of {name}"))
    say(f"[green]✓[/] secret {escape(name)} stored")


@app.command("remove")
def remove(ctx: typer.Context, name: NameArgument) -> None:
    """Remove a secret."""
    client_of(ctx).secrets.remove(name)
    say(f"[green]✓[/] secret {escape(name)} removed")
