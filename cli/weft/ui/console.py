"""The two ways out: data on stdout, chatter on stderr; colours only where a terminal shows them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

from rich.console import Console, RenderableType
from rich.theme import Theme

_THEME = Theme(
    {
        "state.queued": "yellow",
        "state.pending": "yellow",
        "state.downloading": "cyan",
        "state.processing": "bold cyan",
        "state.storing": "cyan",
        "state.completed": "bold green",
        "state.failed": "bold red",
        "state.halted": "magenta",
        "command": "bold",
        "key": "dim",
    }
)
# What a pipe gets is not cut to a terminal's width.
_PIPE_WIDTH = 1000


def _console(to_stderr: bool) -> Console:
    stream = sys.stderr if to_stderr else sys.stdout
    terminal = stream.isatty()
    return Console(
        stderr=to_stderr,
        theme=_THEME,
        highlight=False,
        emoji=False,
        # FORCE_COLOR and its like must not put codes into files.
        force_terminal=terminal,
        width=None if terminal or "COLUMNS" in os.environ else _PIPE_WIDTH,
        soft_wrap=False,
    )


@cache
def out() -> Console:
    """stdout, for data."""
    return _console(False)


@cache
def err() -> Console:
    """stderr, for everything that is no data."""
    return _console(True)


def show(renderable: RenderableType) -> None:
    """Print data for a human."""
    out().print(renderable)


def say(markup: str = "", *, style: str | None = None) -> None:
    """Print chatter; rich's markup, so quote what is not ours by :func:`rich.markup.escape`."""
    err().print(markup, style=style, soft_wrap=True)


def show_json(value: Any) -> None:
    """Print data for a program: indented for a terminal's reader, or else one line."""
    indent = 2 if sys.stdout.isatty() else None
    print(json.dumps(value, indent=indent, ensure_ascii=False), flush=True)


def show_json_lines(values: Iterable[Any]) -> None:
    """Print each value as a line of JSON as soon as it is there."""
    for value in values:
        print(json.dumps(value, ensure_ascii=False), flush=True)
