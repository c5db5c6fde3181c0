"""Output: data goes to stdout and messages go to stderr, with colours only in a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.theme import Theme

from weft.ui.ansi import visible

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
# Output to a pipe is not cut to a terminal's width.
_PIPE_WIDTH = 1000


# Of control characters JSON lets these stand, and some terminals obey them.
_C1 = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


class _Console(Console):
    """Remove control sequences: names and reasons contain text that programs have written."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)


def _console(to_stderr: bool) -> Console:
    stream = sys.stderr if to_stderr else sys.stdout
    terminal = stream.isatty()
    return _Console(
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
    """stderr, for everything that is not data."""
    return _console(True)


def show(renderable: RenderableType) -> None:
    """Print data for a human."""
    out().print(renderable)


def say(markup: str = "", *, style: str | None = None) -> None:
    """Print a message in rich's markup. Quote text from elsewhere with :func:`rich.markup.escape`."""
    err().print(markup, style=style, soft_wrap=True)


def show_json(value: Any) -> None:
    """Print data for a program: indented in a terminal, otherwise on one line."""
    print(to_json(value, indent=2 if sys.stdout.isatty() else None), flush=True)


def show_json_lines(values: Iterable[Any]) -> None:
    """Print each value as a line of JSON as soon as it is there."""
    for value in values:
        print(to_json(value), flush=True)


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON with all letters unescaped, and without control characters."""
    return json.dumps(value, indent=indent, ensure_ascii=False).translate(_C1)


def tell(line: str) -> None:
    """Print data unchanged, except for control sequences in a terminal."""
    print(visible(line) if sys.stdout.isatty() else line, flush=True)
