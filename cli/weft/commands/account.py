"""``login``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from weft import profile as profiles
from weft.client import Client
from weft.commands.prompts import ask_secret
from weft.errors import ConfigurationError
from weft.transport.http import Transport
from weft.ui import times
from weft.ui.console import say

app = typer.Typer()


@app.command("login")
def login(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Argument(metavar="URL", help="URL of the server.", show_default=False)] = None,
    by_token: Annotated[
        bool, typer.Option("--token", help="Sign in with a token, which the command asks for or reads from stdin.")
    ] = False,
    user: Annotated[str | None, typer.Option("--user", help="Sign in with the password of this user.")] = None,
    sso: Annotated[
        bool,
        typer.Option("--sso", help="Sign in in a browser, by any method, and confirm a code there."),
    ] = False,
    project: Annotated[str | None, typer.Option(help="The project, if the user has several.")] = None,
    browser: Annotated[
        bool, typer.Option("--browser", help="Print a link that signs in a browser once, with the stored token.")
    ] = False,
) -> None:
    """Sign in to a server and store the token in the profile file.

    The command asks for the token or password, or reads it from stdin. It is never an argument.
    """
    options = ctx.find_root().obj or {}
    if browser:
        if by_token or user or project or sso:
            raise typer.BadParameter(
                "this uses the stored token; leave out --token, --user, --sso and --project", param_hint="--browser"
            )
        with Client(url or options.get("url"), profile=options.get("profile")) as kept:
            link = kept.sign_in_link()
        print(link.url)
        say(f"[dim]signs in one browser, until {times.moment(link.expires_at)}[/]")
        return
    name = options.get("profile") or "default"
    server = profiles.normalise_url(url or options.get("url") or _known_url(name))
    if by_token and user:
        raise typer.BadParameter("--user signs in with a password; leave out --token or --user", param_hint="--token")
    if sso and (by_token or user):
        raise typer.BadParameter("this signs in in a browser; leave out --token and --user", param_hint="--sso")
    with Client(transport=Transport(profiles.Server(server))) as nobody:
        nobody.check()  # before the command asks for a secret and sends it
        if sso:
            _keep(name, server, _by_code(nobody, project))
            return
    if user is None and not by_token and sys.stdin.isatty():
        user = typer.prompt("User (leave empty to use a token)", default="", show_default=False, err=True) or None
    secret = ask_secret(f"Password of {user}" if user else "Token")
    if user:
        with Client(transport=Transport(profiles.Server(server))) as unsigned:
            token = unsigned.login(user, secret, project)
    else:
        token = secret.strip()
    _keep(name, server, token)


def _by_code(client: Client, project: str | None) -> str:
    """The token of a user who signs in in a browser."""
    waiting = client.begin_login(project)
    print(waiting.url, flush=True)
    say(f"Open this link in a browser, on any machine, and confirm the code [bold]{escape(waiting.code)}[/].")
    return client.finish_login(waiting)


def _keep(name: str, server: str, token: str) -> None:
    """Check a token and store it in the profile file."""
    with Client(server, token) as client:
        me = client.me()
    path = profiles.profile_path()
    profiles.write_profile(path, name, server, token)
    say(f"[green]✓[/] signed in to {escape(server)} as {escape(me.user)}, project {escape(me.project)} ({me.role})")
    say(f"[dim]profile {escape(name)} in {escape(str(path))}[/]")


def _known_url(profile: str) -> str:
    try:
        return profiles.resolve(profile=None if profile == "default" else profile).url
    except ConfigurationError:
        if not sys.stdin.isatty():
            raise typer.BadParameter("name the server: weft login URL") from None
        return str(typer.prompt("Server", default="http://127.0.0.1:8080", err=True))
