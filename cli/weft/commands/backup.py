"""``backup``, ``restore``: the whole of an embedded installation in a file. Another package does the work."""

from __future__ import annotations

import typer

from weft.commands.local import AS_IT_IS, NEEDED, become

app = typer.Typer()


@app.command("backup", context_settings=AS_IT_IS)
def backup(ctx: typer.Context) -> None:
    """Write all of the Weft on this machine into one file, while it runs."""
    become("weft_embedded.backup", ["backup", *ctx.args], "backup", "embedded", NEEDED)


@app.command("restore", context_settings=AS_IT_IS)
def restore(ctx: typer.Context) -> None:
    """Make a Weft from a backup, on this machine or another one."""
    become("weft_embedded.backup", ["restore", *ctx.args], "restore", "embedded", NEEDED)
