"""The output of ``weft up``: one screen of status on a terminal, plain lines otherwise."""

from __future__ import annotations

import contextlib
import shlex
import time
from datetime import datetime
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from weft_embedded.home import Home, State
from weft_embedded.stack import Stack, running_jobs

_COLOURS = {"running": "green", "starting": "yellow", "waiting": "dim", "restarting": "red", "stopping": "yellow"}
_JOBS_EVERY = 2.0
_REDRAW_EVERY = 0.25


class Screen:
    """A context manager; the panel stands at the bottom, lines scroll above it.

    Args:
        console: where to print; the panel is drawn only on a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        # No refresh thread: the supervisor redraws by itself.
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._jobs: int | None = None
        self._jobs_at = self._shown_at = 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            with contextlib.suppress(OSError):  # a lost terminal must not stop the rest of the work
                self._live.stop()

    @property
    def is_terminal(self) -> bool:
        """Whether people see the output, so that it is not kept as a log."""
        return self._live is not None

    def line(self, text: str, *, bad: bool = False) -> None:
        """Something happened."""
        now = datetime.now().strftime("%H:%M:%S")
        style = "red" if bad else "none"
        with contextlib.suppress(OSError):
            self._console.print(f"[dim]{now}[/dim] [{style}]{escape(text)}[/{style}]", highlight=False, soft_wrap=True)

    def show(self, state: State, stack: Stack) -> None:
        """Redraw the panel."""
        if self._live is None or time.monotonic() - self._shown_at < _REDRAW_EVERY:
            return
        self._shown_at = time.monotonic()
        if state.ready and time.monotonic() - self._jobs_at > _JOBS_EVERY:
            self._jobs_at = time.monotonic()
            self._jobs = running_jobs(stack.database_url())
        with contextlib.suppress(OSError):
            self._live.update(panel(state, stack.home, self._jobs), refresh=True)


def panel(state: State, home: Home, jobs: int | None, *, detached: bool = False) -> Panel:
    """One screen of status."""
    parts = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("part", "state", "pid", "restarts"):
        parts.add_column(heading)
    for part in state.parts:
        colour = _COLOURS.get(part.state, "none")
        word = f"[{colour}]{part.state}[/{colour}]"
        if part.note:
            note = colour if part.state == "starting" else "red"
            word += f" [{note}]{escape(part.note[:60])}[/{note}]"
        parts.add_row(part.name, word, str(part.pid or "-"), str(part.restarts or "-"))
    facts = Table.grid(padding=(0, 2, 0, 0))
    starting = "[yellow]starting …[/yellow]"
    facts.add_row("dashboard", f"[bold]{state.url}/[/bold]" if state.ready else starting)
    facts.add_row("", "sign in by a link, which `weft login --browser` prints, or with the token in the CLI profile")
    facts.add_row("API docs", f"{state.url}/docs" if state.ready else starting)
    if state.open:
        facts.add_row("open to others", f"[yellow]{escape(state.open)}[/yellow]")
    if state.exposed:
        facts.add_row("isolation", f"[yellow]{escape(state.exposed)}[/yellow]")
    facts.add_row("running jobs", "-" if jobs is None else str(jobs))
    facts.add_row("home", str(home.path))
    facts.add_row("logs", f"{home.logs}/PART.log")
    facts.add_row("CLI profile", str(home.client_profile))
    facts.add_row("stop", f"weft down --home {shlex.quote(str(home.path))}" if detached else "Ctrl-C, or weft down")
    return Panel(Group(facts, Text(""), parts), title="[bold]weft up[/bold]", title_align="left", expand=False)
