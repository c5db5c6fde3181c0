"""Bars for uploads and downloads: on stderr, in a terminal; elsewhere nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from weft.transfer import Progress as Report
from weft.transfer import silent
from weft.ui.console import err


@contextmanager
def bar(label: str, total: int | None) -> Iterator[Report]:
    """A bar for ``total`` bytes (None: nobody knows); call what it yields with the bytes that passed."""
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
