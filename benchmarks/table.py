"""Printing what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Shown:
    """A table that was printed."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


SHOWN: list[Shown] = []
"""All of this process."""


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    SHOWN.append(Shown(title, columns, rows))
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float], scale: float = 1, digits: int = 1) -> str:
    """``median (min to max)``."""
    low, middle, high = (f"{value * scale:.{digits}f}" for value in (min(values), median(values), max(values)))
    return f"{middle} ({low} to {high})"
