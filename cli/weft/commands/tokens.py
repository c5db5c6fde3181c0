"""``tokens list|create|revoke``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.common import JsonOption, client_of
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.words import ago, moment

app = typer.Typer(no_args_is_help=True, help="API tokens: list, create, revoke.")


@app.command("list")
def list_tokens(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List your tokens in this project, by their first characters."""
    tokens = client_of(ctx).tokens.list()
    if as_json:
        show_json([dict(one.raw) for one in tokens])
        return
    made = table("ID", "NAME", "TOKEN", "CREATED", "LAST USED", "EXPIRES")
    for one in tokens:
        expires = moment(one.expires_at) if one.expires_at else "never"
        made.add_row(one.id, escape(one.name), f"{one.prefix}…", ago(one.created_at), ago(one.last_used_at), expires)
    show(made)


@app.command("create")
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="What it is for.", show_default=False)],
    days: Annotated[int | None, typer.Option("--days", min=1, help="In force for so many days; else for good.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and print it, this once."""
    made = client_of(ctx).tokens.create(name, days)
    if as_json:
        show_json(dict(made.raw))
        return
    print(made.token)
    if sys.stderr.isatty():
        say("[dim]keep it now: it is not shown again[/]")


@app.command("revoke")
def revoke(ctx: typer.Context, token_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)]) -> None:
    """End a token at once, by its id."""
    client_of(ctx).tokens.revoke(token_id)
    say(f"[green]✓[/] token {escape(token_id)} is revoked")
