"""``users list|create|password|disable|enable|promote|demote``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.markup import escape

from weft.commands.common import JsonOption, client_of
from weft.commands.prompts import ask_secret
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.times import ago

app = typer.Typer(no_args_is_help=True, help="Manage the users of the server (administrators).")
NameArgument = Annotated[str, typer.Argument(metavar="USER", show_default=False)]


@app.command("list")
def list_users(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the users with their projects."""
    users = client_of(ctx).users.list()
    if as_json:
        show_json([dict(user.raw) for user in users])
        return
    made = table("NAME", "EMAIL", "", "PROJECTS", "CREATED")
    made.columns[2].min_width = len("admin, disabled")  # long names of others must not cut it
    for user in users:
        marks = [word for word, holds in (("admin", user.admin), ("disabled", user.disabled)) if holds]
        projects = ", ".join(f"{name} ({role})" for name, role in user.projects.items())
        made.add_row(
            escape(user.name), escape(user.email or ""), ", ".join(marks), escape(projects), ago(user.created_at)
        )
    show(made)


@app.command("create")
def create(
    ctx: typer.Context,
    name: NameArgument,
    email: Annotated[str | None, typer.Option(help="Email address.", show_default=False)] = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="Make the user an administrator, who manages users, projects and quotas.")
    ] = False,
    no_password: Annotated[bool, typer.Option("--no-password", help="The user can sign in only with tokens.")] = False,
) -> None:
    """Create a user; `weft projects add` makes the user a member of a project.

    The command asks for the password, or reads it from stdin. It is never an argument.
    """
    password = None if no_password else ask_secret(f"Password of {name} (at least 8 characters, not easy to guess)")
    client_of(ctx).users.create(name, password, email=email, admin=admin)
    say(f"[green]✓[/] user {escape(name)} created; next: weft projects add PROJECT {escape(name)}")


@app.command("password")
def change_password(
    ctx: typer.Context,
    name: NameArgument,
    end_tokens: Annotated[
        bool, typer.Option("--end-tokens", help="Also end all tokens and sessions of the user.")
    ] = False,
) -> None:
    """Change the password of a user; for your own password, the current one is needed.

    The command asks for the passwords, or reads them from stdin: the current password (only if it is your own) and the
    new password, one per line.
    """
    client = client_of(ctx)
    changes: dict[str, Any] = {}
    if name == client.me().user:
        if sys.stdin.isatty():
            changes["current_password"] = ask_secret("Current password")
        else:
            changes["current_password"] = sys.stdin.readline().rstrip("\r\n")
    if end_tokens:
        changes["end_tokens"] = True
    client.users.change(name, **changes, password=ask_secret("New password (at least 8 characters, not easy to guess)"))
    ended = "; all tokens and sessions have ended" if end_tokens else ""
    say(f"[green]✓[/] the password of {escape(name)} is changed{ended}")


@app.command("disable")
def disable(ctx: typer.Context, name: NameArgument) -> None:
    """Disable a user: passwords, tokens and sessions stop working at once."""
    client_of(ctx).users.change(name, disabled=True)
    say(f"[green]✓[/] {escape(name)} is disabled")


@app.command("enable")
def enable(ctx: typer.Context, name: NameArgument) -> None:
    """Enable a disabled user again."""
    client_of(ctx).users.change(name, disabled=False)
    say(f"[green]✓[/] {escape(name)} is enabled")


@app.command("promote")
def promote(ctx: typer.Context, name: NameArgument) -> None:
    """Make a user an administrator."""
    client_of(ctx).users.change(name, admin=True)
    say(f"[green]✓[/] {escape(name)} is an administrator")


@app.command("demote")
def demote(ctx: typer.Context, name: NameArgument) -> None:
    """Revoke a user's administrator rights."""
    client_of(ctx).users.change(name, admin=False)
    say(f"[green]✓[/] {escape(name)} is no longer an administrator")
