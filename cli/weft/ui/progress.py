"""Bars for uploads and downloads, on stderr in a terminal. Elsewhere, nothing is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from weft.transport.transfer import Progress as Report
from weft.transport.transfer import silent
from weft.ui.console import err


@contextmanager
def bar(label: str, total: int | None) -> Iterator[Report]:
    """A bar for ``total`` bytes (None: unknown). Call the yielded function with the number of bytes that have
    passed."""
    if not sys.stderr.isatty():
        yield silent
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=err(), transient=True, expand=True) as progress:
        task = progress.add_task(label, total=total)

        def report(count: int) -> None:
            # Rich leaves out negative steps in its speed, and that is right: those bytes did not arrive.
            progress.update(task, advance=count)

        yield report


@contextmanager
def images_bar(label: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """A bar for ``total`` images. Call the yielded function with the number of finished images, and a word on the
    rest."""
    if not sys.stderr.isatty():
        yield lambda done, word: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]} [dim]{task.fields[word]}[/]"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=err(), transient=True, expand=True) as progress:
        task = progress.add_task(label, total=total, rate="", word="")
        first: int | None = None

        def report(done: int, word: str) -> None:
            nonlocal first
            # The bytes of an earlier run say nothing about the speed of this run.
            first = done if first is None else first
            elapsed = progress.tasks[0].elapsed or 0
            rate = f"{(done - first) / elapsed:,.0f}/s" if elapsed > 1 else ""
            progress.update(task, completed=done, rate=rate, word=word)

        yield report


@contextmanager
def listing(label: str) -> Iterator[Callable[[str], None]]:
    """A spinner for work of unknown length. Call the yielded function with the current step."""
    if not sys.stderr.isatty():
        yield lambda word: None
        return
    with err().status(label) as status:
        yield lambda word: status.update(f"{label} [dim]{escape(word)}[/]")
