"""Line charts in a terminal: braille dots in colours, or a letter for each curve where there are no colours.

Weft has its own code for this: the library plotext has become a binary for a few platforms, and only colours
distinguish its curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeGuard

from rich.text import Text

from weft.resources.metrics import Axis, Curve
from weft.ui.canvas import COLOURS, LETTERS, Canvas, ChartStyle

XAxis = Axis | Literal["trial"]
_TICKS = 4


def chart(title: str, curves: Sequence[tuple[str, Curve]], axis: XAxis, style: ChartStyle) -> list[Text]:
    """The lines of a chart of labelled curves."""
    values = [value for _, curve in curves for value in (*curve.min, *curve.max) if _shown(value, style)]
    xs = [x for _, curve in curves for x in curve.x]
    head = Text.assemble((title, "bold"))
    if not values:
        return [head, Text("  no value can be shown" + (" on a logarithmic axis" if style.log else ""), style="dim")]
    low, high = _padded(min(values), max(values), style.log)
    scale: Callable[[float], float] = math.log10 if style.log else float
    labels = _tick_labels([low + (high - low) * n / _TICKS for n in range(_TICKS + 1)], style.log)
    margin = max(len(label) for label in labels)
    canvas = Canvas(
        style.width - margin - 2, style.height, braille=style.unicode and (style.colours or len(curves) == 1)
    )
    start, stop = min(xs), max(xs)
    for number, (_, curve) in enumerate(curves):
        _draw(canvas, number, curve, (start, max(stop, start + 1)), (low, high), scale, style)
    lines = [head, *_legend(curves, style)]
    lines += _body(canvas, labels, margin, style)
    return [*lines, _x_labels(start, stop, axis, margin, canvas.columns)]


def _shown(value: float | None, style: ChartStyle) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and (value > 0 or not style.log)


def _padded(low: float, high: float, log: bool) -> tuple[float, float]:
    if log:
        low, high = math.log10(low), math.log10(high)
    if low == high:
        room = abs(low) / 2 or 1.0
        return low - room, high + room
    return low, high


def _draw(
    canvas: Canvas,
    number: int,
    curve: Curve,
    x_range: tuple[int, int],
    y_range: tuple[float, float],
    scale: Callable[[float], float],
    style: ChartStyle,
) -> None:
    def column(x: int) -> int:
        return round((x - x_range[0]) / (x_range[1] - x_range[0]) * (canvas.dots_across - 1))

    def row(value: float) -> int:
        part = (scale(value) - y_range[0]) / (y_range[1] - y_range[0])
        return round((1 - part) * (canvas.dots_down - 1))

    before: tuple[int, int] | None = None
    for x, low, high, last in zip(curve.x, curve.min, curve.max, curve.last, strict=True):
        at = column(x)
        if _shown(low, style) and _shown(high, style):
            canvas.line((at, row(low)), (at, row(high)), number)
        if not _shown(last, style):
            before = None  # a gap where there is no number
            continue
        here = (at, row(last))
        canvas.line(before or here, here, number)
        before = here


def _legend(curves: Sequence[tuple[str, Curve]], style: ChartStyle) -> list[Text]:
    if len(curves) == 1 and not curves[0][0]:
        return []
    lines = [Text("  ")]
    entries = [(f"{_mark(number, style)} {label}", number) for number, (label, _) in enumerate(curves)]
    for text, number in [*entries, *([] if style.colours else [("* several", 0)])]:
        if lines[-1].cell_len > 2:
            lines[-1].append("   ")
        if lines[-1].cell_len + len(text) > style.width and lines[-1].cell_len > 2:
            lines.append(Text("  "))
        lines[-1].append(text, style=COLOURS[number % len(COLOURS)] if style.colours else "")
    for line in lines:
        line.rstrip()
    return lines


def _mark(number: int, style: ChartStyle) -> str:
    return ("━" if style.unicode else "-") if style.colours else LETTERS[number % len(LETTERS)]


def _body(canvas: Canvas, labels: Sequence[str], margin: int, style: ChartStyle) -> list[Text]:
    edge, tick, corner, floor = ("│", "┤", "└", "─") if style.unicode else ("|", "+", "+", "-")
    at = {round((canvas.rows - 1) * (1 - n / _TICKS)): label for n, label in enumerate(labels)}
    lines = []
    for row in range(canvas.rows):
        label = at.get(row)
        line = Text.assemble((f"{label or '':>{margin}} {tick if label else edge}", "dim"))
        line.append_text(canvas.text(row, COLOURS if style.colours else ()))
        lines.append(line)
    lines.append(Text(f"{'':>{margin}} {corner}{floor * canvas.columns}", style="dim"))
    return lines


def _x_labels(start: int, stop: int, axis: XAxis, margin: int, columns: int) -> Text:
    left, middle, right = (_x_label(x, axis, stop - start) for x in (start, (start + stop) // 2, stop))
    line = list(" " * (margin + 2 + columns))
    for text, at in (
        (left, margin + 2),
        (right, margin + 2 + columns - len(right)),
        (middle, margin + 2 + (columns - len(middle)) // 2),
    ):
        # The middle comes last, and only where there is room for it.
        around = line[max(at - 2, 0) : at + len(text) + 2]
        if at >= 0 and (text is not middle or not "".join(around).strip()):
            line[at : at + len(text)] = text
    return Text("".join(line).rstrip(), style="dim")


def _x_label(x: int, axis: XAxis, span: int) -> str:
    if axis != "time":
        return f"{axis} {x:,}"
    then = datetime.fromtimestamp(x / 1000, UTC).astimezone()
    return then.strftime("%H:%M:%S" if span < 20 * 3_600_000 else "%m-%d %H:%M")


def _tick_labels(ticks: Sequence[float], log: bool) -> list[str]:
    """The shortest labels that still differ."""
    values = [10**tick for tick in ticks] if log else list(ticks)
    for digits in range(3, 16):
        labels = [f"{value:.{digits}g}" for value in values]
        if len(set(labels)) == len(labels):
            return labels
    return labels
