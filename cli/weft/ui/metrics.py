"""Metrics as a table and as charts."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft import words
from weft.resources.metrics import Axis, Curve, Series
from weft.ui import times
from weft.ui.canvas import ChartStyle
from weft.ui.chart import chart
from weft.ui.console import out
from weft.ui.jobs import table

_MOST_CHARTS, _MOST_CURVES = 6, 8
_HEIGHT, _LEAST_HEIGHT = 12, 4
"""Rows of a chart without its title, legend and x axis."""
_AROUND = 5
"""The rows of these, and an empty row."""
_PIPE_WIDTH = 80


def series_table(found: Sequence[Series]) -> Table:
    """A line for each series. It names the learner and the attempt only if there are several."""
    learners = len({series.learner for series in found}) > 1
    attempts = len({series.attempt for series in found}) > 1
    extra = [*(["LEARNER"] if learners else []), *(["ATTEMPT"] if attempts else [])]
    steps = any(series.kind == "user" for series in found)
    numbers = ("LEARNER", "ATTEMPT", "POINTS", "STEP", "LAST", "MIN", "MAX")
    columns = ("METRIC", *extra, "POINTS", *(["STEP"] if steps else []), "LAST", "MIN", "MAX", "UPDATED")
    made = table(*columns, numbers=numbers)
    for series in found:
        made.add_row(
            Text(series.name),
            *([str(series.learner)] if learners else []),
            *([str(series.attempt)] if attempts else []),
            f"{series.points:,}",
            *([f"{series.last_step:,}"] if steps else []),
            *(value(series.name, of, series.kind) for of in (series.last, series.min, series.max)),
            times.ago(series.last_time),
        )
    return made


def value(name: str, of: float | None, kind: str = "user") -> str:
    """A value in few characters; a learner's bytes and percents in their units."""
    if of is None:
        return "nan"
    if kind == "system":
        if "_bytes" in name:
            return words.size(int(of)) + ("/s" if name.endswith("_per_s") else "")
        if name.endswith("_percent"):
            return f"{of:.0f} %"
    return f"{of:.5g}"


def chart_names(found: Sequence[Series]) -> list[str]:
    """The metrics whose charts have room."""
    return list(dict.fromkeys(series.name for series in found))[:_MOST_CHARTS]


def chart_style(charts: int, *, log: bool, fit: bool) -> ChartStyle:
    """The rows of each of several charts in this terminal. ``fit``: all charts fit at once."""
    console = out()
    width = console.width if console.is_terminal else int(os.environ.get("COLUMNS", _PIPE_WIDTH))
    room = (console.height - 1) // max(charts, 1) - _AROUND if fit and console.is_terminal else _HEIGHT
    return ChartStyle(
        width=width,
        height=max(_LEAST_HEIGHT, min(room, _HEIGHT)),
        colours=console.is_terminal and not console.no_color and console.color_system is not None,
        unicode=_has_unicode(console),
        log=log,
    )


def _has_unicode(console: Console) -> bool:
    return console.encoding.lower().replace("-", "").startswith("utf")


def charts(names: Sequence[str], curves: Sequence[Curve], axis: Axis, style: ChartStyle) -> Text:
    """A chart for each name, with a curve for each learner and attempt."""
    learners = len({curve.learner for curve in curves}) > 1
    attempts = len({curve.attempt for curve in curves}) > 1
    lines: list[Text] = []
    for name in names:
        own = [curve for curve in curves if curve.name == name]
        labelled = [(_label(curve, learners, attempts), curve) for curve in own[:_MOST_CURVES]]
        lines += [*chart(name, labelled, axis, style)]
        if len(own) > _MOST_CURVES:
            lines.append(Text(f"  and {len(own) - _MOST_CURVES} more: --learner, --attempt choose", style="dim"))
        lines.append(Text())
    return Text("\n").join(lines[:-1])


def _label(curve: Curve, learners: bool, attempts: bool) -> str:
    parts = [f"attempt {curve.attempt}"] if attempts else []
    return ", ".join([*parts, f"learner {curve.learner}"] if learners else parts)
