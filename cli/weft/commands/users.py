"""``users list|create|password|disable|enable|promote|demote``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.markup import escape

from weft.commands.asking import ask_secret
from weft.commands.common import JsonOption, client_of
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.words import ago

app = typer.Typer(no_args_is_help=True, help="Users of the server, for its administrators.")
NameArgument = Annotated[str, typer.Argument(metavar="USER", show_default=False)]


@app.command("list")
def list_users(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the users with their projects."""
    users = client_of(ctx).users.list()
    if as_json:
        show_json([dict(one.raw) for one in users])
        return
    made = table("NAME", "EMAIL", "", "PROJECTS", "CREATED")
    for one in users:
        marks = [word for word, holds in (("admin", one.admin), ("disabled", one.disabled)) if holds]
        projects = ", ".join(f"{name} ({role})" for name, role in one.projects.items())
        made.add_row(escape(one.name), escape(one.email or ""), ", ".join(marks), escape(projects), ago(one.created_at))
    show(made)


@app.command("create")
def create(
    ctx: typer.Context,
    name: NameArgument,
    email: Annotated[str | None, typer.Option(show_default=False)] = None,
    admin: Annotated[bool, typer.Option("--admin", help="May look after users, projects and quotas.")] = False,
    no_password: Annotated[bool, typer.Option("--no-password", help="They will sign in with tokens only.")] = False,
) -> None:
    """Make a user; `weft projects add` gives them something to do.

    The password is asked for, or read from stdin: it is never an argument.
    """
    password = None if no_password else ask_secret(f"Password of {name} (at least 8 characters)")
    client_of(ctx).users.create(name, password, email=email, admin=admin)
    say(f"[green]✓[/] user {escape(name)} is made; next: weft projects add PROJECT {escape(name)}")


@app.command("password")
def change_password(ctx: typer.Context, name: NameArgument) -> None:
    """Give a user another password; your own with the one before.

    Both are asked for, or read from stdin: for your own the old one, then the new one, a line each.
    """
    client = client_of(ctx)
    changes: dict[str, Any] = {}
    if name == client.me().user:
        if sys.stdin.isatty():
            changes["current_password"] = ask_secret("Current password")
        else:
            changes["current_password"] = sys.stdin.readline().rstrip("\r\n")
    client.users.change(name, **changes, password=ask_secret("New password (at least 8 characters)"))
    say(f"[green]✓[/] {escape(name)} has another password")


@app.command("disable")
def disable(ctx: typer.Context, name: NameArgument) -> None:
    """Keep a user out from now on: passwords, tokens, sessions."""
    client_of(ctx).users.change(name, disabled=True)
    say(f"[green]✓[/] {escape(name)} is out")


@app.command("enable")
def enable(ctx: typer.Context, name: NameArgument) -> None:
    """Let a disabled user in again."""
    client_of(ctx).users.change(name, disabled=False)
    say(f"[green]✓[/] {escape(name)} may come in again")


@app.command("promote")
def promote(ctx: typer.Context, name: NameArgument) -> None:
    """Make a user an administrator."""
    client_of(ctx).users.change(name, admin=True)
    say(f"[green]✓[/] {escape(name)} is an administrator")


@app.command("demote")
def demote(ctx: typer.Context, name: NameArgument) -> None:
    """Take a user's administrator's rights."""
    client_of(ctx).users.change(name, admin=False)
    say(f"[green]✓[/] {escape(name)} is no administrator any more")
