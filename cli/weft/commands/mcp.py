"""``mcp``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from weft.commands.common import client_of
from weft.errors import WeftError

app = typer.Typer()


@app.command("mcp")
def mcp(
    ctx: typer.Context,
    allow_write: Annotated[
        bool, typer.Option("--allow-write", help="Also offer the tools `submit` and `halt`. Default: only reading.")
    ] = False,
    root: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The folder whose files `submit` may send as code.")
    ] = Path("."),
) -> None:
    """Serve Weft to an agent, as an MCP server on standard input and output.

    The tools plan jobs, explain why they wait or fail, search logs, and compare metrics, with the rights of your token.
    """
    if find_spec("mcp") is None:
        raise WeftError("weft mcp needs the official MCP SDK: pip install 'weft[mcp]'")
    from weft.agents.server import make_server

    make_server(client_of(ctx), allow_write=allow_write, root=root).run("stdio")
