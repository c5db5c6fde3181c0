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
from weft.ui.chart import ChartStyle, chart
from weft.ui.console import out
from weft.ui.jobs import table

_MOST_CHARTS, _MOST_CURVES = 6, 8
_HEIGHT, _LEAST_HEIGHT = 12, 4
"""Rows of a chart without its title, legend and x axis."""
_AROUND = 5
"""Rows of these, and an empty one."""
_PIPE_WIDTH = 80


def series_table(series: Sequence[Series]) -> Table:
    """One line a series; the learner and the attempt only where there are several."""
    learners = len({one.learner for one in series}) > 1
    attempts = len({one.attempt for one in series}) > 1
    extra = [*(["LEARNER"] if learners else []), *(["ATTEMPT"] if attempts else [])]
    steps = any(one.kind == "user" for one in series)
    numbers = ("LEARNER", "ATTEMPT", "POINTS", "STEP", "LAST", "MIN", "MAX")
    columns = ("METRIC", *extra, "POINTS", *(["STEP"] if steps else []), "LAST", "MIN", "MAX", "UPDATED")
    made = table(*columns, numbers=numbers)
    for one in series:
        made.add_row(
            Text(one.name),
            *([str(one.learner)] if learners else []),
            *([str(one.attempt)] if attempts else []),
            f"{one.points:,}",
            *([f"{one.last_step:,}"] if steps else []),
            *(value(one.name, of, one.kind) for of in (one.last, one.min, one.max)),
            times.ago(one.last_time),
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


def chart_names(series: Sequence[Series]) -> list[str]:
    """The metrics of which there is room for a chart."""
    return list(dict.fromkeys(one.name for one in series))[:_MOST_CHARTS]


def chart_style(charts: int, *, log: bool, fit: bool) -> ChartStyle:
    """For so many charts below each other in this terminal; ``fit``: all of them at once."""
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
    learners = len({one.learner for one in curves}) > 1
    attempts = len({one.attempt for one in curves}) > 1
    lines: list[Text] = []
    for name in names:
        own = [one for one in curves if one.name == name]
        labelled = [(_label(one, learners, attempts), one) for one in own[:_MOST_CURVES]]
        lines += [*chart(name, labelled, axis, style)]
        if len(own) > _MOST_CURVES:
            lines.append(Text(f"  and {len(own) - _MOST_CURVES} more: --learner, --attempt choose", style="dim"))
        lines.append(Text())
    return Text("\n").join(lines[:-1])


def _label(curve: Curve, learners: bool, attempts: bool) -> str:
    parts = [f"attempt {curve.attempt}"] if attempts else []
    return ", ".join([*parts, f"learner {curve.learner}"] if learners else parts)
