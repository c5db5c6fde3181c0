"""``service-accounts list|create|delete|token``."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer
from rich.markup import escape

from weft.commands.common import JsonOption, client_of
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.times import ago

app = typer.Typer(no_args_is_help=True, help="Manage the project's accounts for machines (owners).")
NameArgument = Annotated[str, typer.Argument(metavar="ACCOUNT", show_default=False)]


@app.command("list")
def list_accounts(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the project's service accounts."""
    accounts = client_of(ctx).service_accounts.list()
    if as_json:
        show_json([dict(account.raw) for account in accounts])
        return
    made = table("NAME", "USER", "ROLE", "TOKENS", "CREATED")
    for account in accounts:
        made.add_row(
            escape(account.name), escape(account.user), account.role, str(account.tokens), ago(account.created_at)
        )
    show(made)


@app.command("create")
def create(
    ctx: typer.Context,
    name: NameArgument,
    role: Annotated[
        Literal["owner", "editor", "viewer"], typer.Option(help="Role of the account in the project.")
    ] = "editor",
) -> None:
    """Create a service account. It has no token yet."""
    made = client_of(ctx).service_accounts.create(name, role)
    say(f"[green]✓[/] {escape(made.user)} is {made.role}; its token: weft service-accounts token {escape(name)}")


@app.command("delete")
def delete(ctx: typer.Context, name: NameArgument) -> None:
    """Delete a service account; its tokens stop working at once."""
    client_of(ctx).service_accounts.delete(name)
    say(f"[green]✓[/] service account {escape(name)} deleted")


@app.command("token")
def token(
    ctx: typer.Context,
    account: NameArgument,
    name: Annotated[str, typer.Option(help="Purpose of the token.")] = "token",
    days: Annotated[
        int | None, typer.Option("--days", min=1, help="Number of days until the token expires. Default: never.")
    ] = None,
    role: Annotated[
        Literal["viewer", "editor", "owner"] | None,
        typer.Option(help="The most that the token may do. Default: the account's role.", show_default=False),
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
    """Create a token of a service account and print it. It can't be shown again.

    It ends with the token that you are signed in with. The dashboard, signed in to with your password, makes others.
    """
    made = client_of(ctx).service_accounts.create_token(account, name, days, role, gpu_hours)
    if as_json:
        show_json(dict(made.raw))
        return
    print(made.token)
    if sys.stderr.isatty():
        say("[dim]store it now; it can't be shown again[/]")
