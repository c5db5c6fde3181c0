"""The parts that commands share: the client, the usual arguments and options, and the completion of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from weft.client import Client
from weft.errors import WeftError

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def client_of(ctx: typer.Context) -> Client:
    """The client for the global options and the environment."""
    options = ctx.find_root().obj or {}
    client = Client(options.get("url"), profile=options.get("profile"))
    ctx.call_on_close(client.close)
    return client


def overrides(settings: Iterable[str] | None) -> dict[str, str]:
    """``key=value`` pairs as a mapping.

    Raises:
        BadParameter: a text has another form.
    """
    values = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{setting!r} does not have the form KEY=VALUE", param_hint="--set")
        values[key.strip()] = value
    return values


def complete_job(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The newest jobs, for the shell's completion; empty if the server does not answer."""
    try:
        jobs = list(client_of(ctx).jobs.list(limit=30))
    except WeftError:
        return []
    return [(job.id, f"{job.name} {job.state}") for job in jobs if job.id.startswith(incomplete)]


JobsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB]...",
        help="Ids, beginnings of ids, unique names, or @last.",
        autocompletion=complete_job,
        show_default=False,
    ),
]
JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Id, beginning of an id, unique name, or @last.",
        autocompletion=complete_job,
        show_default=False,
    ),
]
