"""``version``, with as few imports as possible, because it must answer at once."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from weft import profile as profiles
from weft.errors import WeftError
from weft.transport.http import Transport, client_version

app = typer.Typer()


@app.command("version")
def version(ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print the versions of this client and of the server."""
    server: str | None = None
    where = ""
    trouble = ""
    try:
        options = ctx.find_root().obj or {}
        known = profiles.resolve(options.get("url"), profile=options.get("profile"))
        where = known.url
        # Without retries, because the command must answer at once even if the server does not.
        transport = Transport(known, delays=())
        server = str(transport.json("GET", "/healthz", base="", signed=False).get("version") or "unknown")
        transport.close()
    except WeftError as error:
        trouble = str(error)
    if as_json:
        print(json.dumps({"client": client_version(), "server": server, "url": where or None}))
        return
    print(f"client  {client_version()}")
    print(f"server  {server or '–'}" + (f"  {where}" if server else ""))
    if trouble:
        print(trouble, file=sys.stderr)
