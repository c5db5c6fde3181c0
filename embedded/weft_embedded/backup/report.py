"""The output of `weft backup` and `weft restore`: bars on a terminal, plain lines otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


class Report:
    """Args:
    console: on stderr.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        """A line about what was done."""
        self._console.print(escape(text), highlight=False, soft_wrap=True)

    @contextmanager
    def spinner(self, what: str) -> Iterator[None]:
        """Around work whose size is not known."""
        if self._console.is_terminal:
            with self._console.status(f"{escape(what)} …"):
                yield
        else:
            self.say(f"{what} …")
            yield

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Around work of ``total`` bytes; it yields a function that takes the bytes done since its last call."""
        if not self._console.is_terminal:
            self.say(f"{what} …")
            yield lambda _: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
        with Progress(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=self._console) as progress:
            task = progress.add_task(escape(what), total=total)
            yield lambda done: progress.update(task, advance=done)
