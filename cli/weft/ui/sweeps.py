"""Sweeps as tables, and their progress as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft import words
from weft.models import SweepInfo, Trial
from weft.resources.metrics import Curve
from weft.ui import cells, metrics, times
from weft.ui.chart import ChartStyle, chart
from weft.ui.jobs import table

_LONGEST = 40


def sweep_table(sweeps: Sequence[SweepInfo]) -> Table:
    """A line for each sweep."""
    made = table(
        *("ID", "NAME", "STATE", "SEARCH", "TRIALS", "METRIC", "BEST", "TRIAL", "SUBMITTED"),
        numbers=("TRIALS", "BEST", "TRIAL"),
    )
    for sweep in sweeps:
        best = ("–", "–") if sweep.best is None else (_value(sweep.best.value), str(sweep.best.number))
        made.add_row(
            *(sweep.id, Text(sweep.name), cells.state(sweep.state), sweep.search, f"{sweep.told}/{sweep.trials}"),
            *(Text(sweep.metric), *best, times.ago(sweep.created_at)),
        )
    return made


def sweep_panel(sweep: SweepInfo, trials: Sequence[Trial], shown: Sequence[Trial], style: ChartStyle) -> RenderableType:
    """A sweep, the curve of its values, and a table of some trials."""
    under_way = sweep.asked - sweep.told
    head = Text.assemble((sweep.name, "bold"), f"  {sweep.id}  ", cells.state(sweep.state))
    parts: list[RenderableType] = [head]
    if sweep.reason:
        parts.append(Text(sweep.reason))
    count = f"{sweep.told} of {words.count(sweep.trials, 'trial')} ended, {under_way} under way"
    goal = "largest" if sweep.goal == "max" else "smallest"
    parts += [Text(f"{count}; search {sweep.search} for the {goal} {sweep.metric}", style="dim"), ""]
    parts += [*value_chart(sweep, trials, style), ""]
    parts.append(trial_table(sweep, shown))
    if len(shown) < len(trials):
        parts.append(Text(f"{len(shown)} of {words.count(len(trials), 'trial')}; --all shows all", style="dim"))
    return Group(*parts)


def trial_table(sweep: SweepInfo, trials: Sequence[Trial]) -> Table:
    """A line for each trial, with a column for each parameter; with ``pbt`` also for the trial that it came from."""
    names = sorted({name for trial in trials for name in trial.parameters})
    origin = ("FROM",) if any(trial.parent is not None for trial in trials) else ()
    metric = sweep.metric.upper()
    made = table(
        *("TRIAL", *origin, *names, metric, "STATE", "JOB", "TIME"),
        numbers=("TRIAL", "FROM", metric),
    )
    best = sweep.best.number if sweep.best else None
    for trial in trials:
        state = cells.state(trial.state)
        if trial.state == "RUNNING" and trial.job_state:
            state = cells.state(trial.job_state)
        made.add_row(
            Text(str(trial.number), style="bold" if trial.number == best else ""),
            *(("–" if trial.parent is None else str(trial.parent),) if origin else ()),
            *(Text(parameter(trial.parameters.get(name))) for name in names),
            Text(_value(trial.value), style="bold" if trial.number == best else ""),
            state,
            trial.job or "–",
            times.span((trial.ended_at - trial.created_at).total_seconds())
            if trial.ended_at and trial.created_at
            else "",
        )
    return made


def _value(value: float | None) -> str:
    return "–" if value is None else metrics.value("", value)


def parameter(value: Any) -> str:
    """A parameter's value in a cell: numbers with five digits."""
    if isinstance(value, float):
        return f"{value:.5g}"
    return cells.shortened(str(value).lower() if isinstance(value, bool) else str(value), _LONGEST)


def value_chart(sweep: SweepInfo, trials: Sequence[Trial], style: ChartStyle) -> list[Text]:
    """The value of each trial by its number, and the best value so far."""
    done = [trial for trial in trials if trial.value is not None]
    if not done:
        return [Text("no trial has a value yet", style="dim")]
    better = max if sweep.goal == "max" else min
    values = [float(trial.value or 0.0) for trial in done]
    best: list[float] = []
    for value in values:
        best.append(better(value, best[-1]) if best else value)
    numbers = [trial.number for trial in done]
    curves = [("best so far", _curve(numbers, best)), ("trial", _curve(numbers, values))]
    return chart(f"{sweep.metric} by trial", curves, "trial", style)


def _curve(x: Sequence[int], y: Sequence[float]) -> Curve:
    return Curve("", "", "user", 1, 1, x=x, min=y, max=y, last=y, count=[1] * len(x), raw={})
