"""Trials as points in a space of parameters and values: parallel coordinates and slices, as a sweep's page has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from weft.ui import cells
from weft.ui.canvas import Canvas, ChartStyle

_STYLES = ("dim", "cyan", "bold green")
"""Of the other points, of the best quarter, and of the best one."""
_MARKS = {True: "·•●", False: ".o*"}
_MAGNITUDES = 50
"""Numbers of which the largest is so many times the smallest get a logarithmic scale."""
_AXIS = 11
"""Columns that an axis and its names take, at least."""
_LONGEST = 14


@dataclass(frozen=True)
class Point:
    """A trial: its values in the order of the names, and its class, an index of the styles."""

    at: Sequence[Any]
    rank: int


@dataclass(frozen=True)
class _Scale:
    place: Callable[[Any], float | None]
    """From 0 to 1."""
    ends: tuple[str, str]


def ranked(rows: Sequence[Sequence[Any]]) -> list[Point]:
    """Points of these rows, the best first."""
    good = math.ceil(len(rows) / 4)
    return [Point(row, 2 if at == 0 else 1 if at < good else 0) for at, row in enumerate(rows)]


def parallel(names: Sequence[str], points: Sequence[Point], style: ChartStyle) -> list[Text]:
    """An axis for each name, and a line for each point across them. The last name is that of the values, and stays if
    there is no room for all."""
    most = max(2, (style.width - _AXIS) // _AXIS + 1)
    chosen = list(range(len(names))) if len(names) <= most else [*range(most - 1), len(names) - 1]
    scales = [_scale([point.at[at] for point in points]) for at in chosen]
    marks = _MARKS[style.unicode]
    canvas = Canvas(style.width, style.height, braille=style.unicode and style.colours, marks=marks, several="")
    columns = [round(at * (canvas.columns - 1) / (len(chosen) - 1)) for at in range(len(chosen))]
    for point in reversed(points):  # the best over the others
        before = None
        for at, scale, column in zip(chosen, scales, columns, strict=True):
            share = scale.place(point.at[at])
            if share is None:
                before = None
                continue
            across = round(column / max(canvas.columns - 1, 1) * (canvas.dots_across - 1))
            here = (across, round((1 - share) * (canvas.dots_down - 1)))
            canvas.line(before or here, here, point.rank)
            before = here
    styles = _STYLES if style.colours else ()
    width = canvas.columns
    lines = [
        _spread([names[at] for at in chosen], columns, width, "bold"),
        _spread([scale.ends[1] for scale in scales], columns, width, "dim"),
        *(_with_axes(canvas.text(row, styles), columns, style) for row in range(canvas.rows)),
        _spread([scale.ends[0] for scale in scales], columns, width, "dim"),
    ]
    if len(chosen) < len(names):
        left = ", ".join(names[most - 1 : -1])
        lines.append(Text(f"no room for {left}", style="dim"))
    return lines


def scatter(points: Sequence[tuple[Any, Any, int]], style: ChartStyle) -> list[Text]:
    """A mark for each point (x, y, class), the best first."""
    across, up = _scale([x for x, _, _ in points]), _scale([y for _, y, _ in points])
    margin = max(len(end) for end in up.ends)
    canvas = Canvas(style.width - margin - 2, style.height, braille=False, marks=_MARKS[style.unicode], several="")
    for x, y, rank in reversed(points):
        column, row = across.place(x), up.place(y)
        if column is not None and row is not None:
            canvas.dot(round(column * (canvas.dots_across - 1)), round((1 - row) * (canvas.dots_down - 1)), rank)
    edge, tick, corner, floor = ("│", "┤", "└", "─") if style.unicode else ("|", "+", "+", "-")
    labels = {0: up.ends[1], canvas.rows - 1: up.ends[0]}
    lines = []
    for row in range(canvas.rows):
        label = labels.get(row, "")
        line = Text.assemble((f"{label:>{margin}} {tick if label else edge}", "dim"))
        lines.append(line.append_text(canvas.text(row, _STYLES if style.colours else ())))
    lines.append(Text(f"{'':>{margin}} {corner}{floor * canvas.columns}", style="dim"))
    ends = f"{across.ends[0]}{across.ends[1]:>{canvas.columns - len(across.ends[0])}}"
    return [*lines, Text(f"{'':>{margin}}  {ends}", style="dim")]


def _scale(values: Sequence[Any]) -> _Scale:
    """Numbers by size, on a logarithmic scale if they span magnitudes; other values by name."""
    found = [value for value in values if value is not None]
    if found and all(isinstance(value, int | float) and not isinstance(value, bool) for value in found):
        low, high = min(found), max(found)
        log = low > 0 and high / low >= _MAGNITUDES
        start, stop = (math.log(low), math.log(high)) if log else (low, high)

        def place(value: Any) -> float | None:
            if value is None:
                return None
            at = math.log(value) if log else value
            return (at - start) / (stop - start) if stop > start else 0.5

        return _Scale(place, (f"{low:.3g}", f"{high:.3g}"))
    names = sorted({_name(value) for value in found})

    def place_name(value: Any) -> float | None:
        if value is None:
            return None
        return names.index(_name(value)) / (len(names) - 1) if len(names) > 1 else 0.5

    ends = (names[0], names[-1] if len(names) > 1 else "") if names else ("", "")
    return _Scale(place_name, (cells.shortened(ends[0], _LONGEST), cells.shortened(ends[1], _LONGEST)))


def _name(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _spread(texts: Sequence[str], columns: Sequence[int], width: int, style: str) -> Text:
    """Texts around these columns, none beyond the edges."""
    room = (columns[1] if len(columns) > 1 else width) - 1
    line = [" "] * width
    for text, column in zip(texts, columns, strict=True):
        text = cells.shortened(text, room)
        at = min(max(column - len(text) // 2, 0), width - len(text))
        if at > 1 and line[at - 1] != " ":  # the text before comes too close
            line[at - 2 : at] = "… "
        line[at : at + len(text)] = text
    return Text("".join(line).rstrip(), style=style)


def _with_axes(line: Text, columns: Sequence[int], style: ChartStyle) -> Text:
    """The axes, where nothing is drawn over them."""
    plain = line.plain
    free = [column for column in columns if plain[column] == " "]
    edge = "│" if style.unicode else "|"
    made = Text("".join(edge if at in free else character for at, character in enumerate(plain)), spans=line.spans)
    for column in free:
        made.stylize("dim", column, column + 1)
    return made
