"""``tokens list|create|revoke``."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer
from rich.markup import escape

from weft.commands.common import JsonOption, client_of
from weft.models import Budget
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.times import ago, moment

app = typer.Typer(no_args_is_help=True, help="List, create and revoke API tokens.")


@app.command("list")
def list_tokens(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List your tokens in this project; of each token, only the first characters are shown."""
    tokens = client_of(ctx).tokens.list()
    if as_json:
        show_json([dict(token.raw) for token in tokens])
        return
    made = table("ID", "NAME", "TOKEN", "ROLE", "GPU-HOURS", "CREATED", "LAST USED", "EXPIRES")
    for token in tokens:
        expires = moment(token.expires_at) if token.expires_at else "never"
        made.add_row(
            token.id,
            escape(token.name),
            f"{token.prefix}…",
            token.role or "yours",
            _spent(token.budget),
            ago(token.created_at),
            ago(token.last_used_at),
            expires,
        )
    show(made)


@app.command("create")
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Purpose of the token.", show_default=False)],
    days: Annotated[
        int | None, typer.Option("--days", min=1, help="Number of days until the token expires. Default: never.")
    ] = None,
    role: Annotated[
        Literal["viewer", "editor", "owner"] | None,
        typer.Option(help="The most that the token may do. Default: all that you may.", show_default=False),
    ] = None,
    gpu_hours: Annotated[
        float | None,
        typer.Option(
            "--gpu-hours",
            min=0,
            help="A budget: GPU-hours that the token's jobs may use in all. Default: no budget.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and print it. It can't be shown again."""
    made = client_of(ctx).tokens.create(name, days, role, gpu_hours)
    if as_json:
        show_json(dict(made.raw))
        return
    print(made.token)
    if sys.stderr.isatty():
        say("[dim]store it now; it can't be shown again[/]")


@app.command("revoke")
def revoke(ctx: typer.Context, token_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)]) -> None:
    """Revoke a token by its id; it stops working at once."""
    client_of(ctx).tokens.revoke(token_id)
    say(f"[green]✓[/] token {escape(token_id)} revoked")


def _spent(budget: Budget | None) -> str:
    """``2.5 of 10``: what the token's jobs have used and reserved of its budget."""
    return f"{budget.used + budget.reserved:.4g} of {budget.gpu_hours:.4g}" if budget else "no limit"
