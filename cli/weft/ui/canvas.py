"""What terminals are drawn on: a grid of dots, each of which belongs to a curve or to a class of points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

COLOURS = ("cyan", "yellow", "green", "magenta", "red", "blue", "bright_cyan", "bright_yellow")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell: [row][column]


@dataclass(frozen=True)
class ChartStyle:
    """How a chart is drawn: its size in characters, and what the terminal can show."""

    width: int
    height: int
    colours: bool
    unicode: bool
    log: bool = False
    """Whether y is logarithmic."""


class Canvas:
    """Dots of several owners. Where two of them meet, the later dot decides the colour.

    Args:
        braille: whether a character has eight dots instead of one.
        marks: without braille, the character of each owner.
        several: without braille, the character where owners meet; empty: that of the later one.
    """

    def __init__(self, columns: int, rows: int, *, braille: bool, marks: str = LETTERS, several: str = "*") -> None:
        self.columns, self.rows = max(columns, 10), max(rows, 3)
        self._across, self._down = (2, 4) if braille else (1, 1)
        self._braille, self._marks, self._several = braille, marks, several
        self._masks = [[0] * self.columns for _ in range(self.rows)]
        self._owners: list[list[int | None]] = [[None] * self.columns for _ in range(self.rows)]

    @property
    def dots_across(self) -> int:
        return self.columns * self._across

    @property
    def dots_down(self) -> int:
        return self.rows * self._down

    def line(self, start: tuple[int, int], end: tuple[int, int], owner: int) -> None:
        steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
        for step in range(steps + 1):
            x = start[0] + round((end[0] - start[0]) * step / steps)
            y = start[1] + round((end[1] - start[1]) * step / steps)
            self.dot(x, y, owner)

    def dot(self, x: int, y: int, owner: int) -> None:
        row, column = y // self._down, x // self._across
        self._masks[row][column] |= _DOTS[y % self._down][x % self._across] if self._braille else 1 << owner
        self._owners[row][column] = owner

    def text(self, row: int, styles: Sequence[str]) -> Text:
        """A row, each owner in its style; without styles in none."""
        made = Text()
        for owner, cells in groupby(self._cells(row), lambda cell: cell[1]):
            style = styles[owner % len(styles)] if owner is not None and styles else ""
            made.append("".join(character for character, _ in cells), style)
        return made

    def _cells(self, row: int) -> Iterator[tuple[str, int | None]]:
        """(character, owner) from left to right."""
        for mask, owner in zip(self._masks[row], self._owners[row], strict=True):
            if owner is None:
                yield " ", None
            elif self._braille:
                yield chr(_BRAILLE + mask), owner
            elif self._several and mask & (mask - 1):
                yield self._several, owner
            else:
                yield self._marks[owner % len(self._marks)], owner
