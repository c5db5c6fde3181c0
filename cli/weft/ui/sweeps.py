"""Sweeps as tables, and what their page shows as charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft import words
from weft.models import SweepInfo, Trial
from weft.resources.metrics import Curve
from weft.ui import cells, metrics, points, times
from weft.ui.canvas import ChartStyle
from weft.ui.chart import chart
from weft.ui.jobs import table

_LONGEST = 40
_PARALLEL, _SMALL = 10, 6
"""Rows of the parallel coordinates, and of a parameter's slice."""
_SLICE, _GAP = 37, 3
"""Columns of a slice, at least, and between two of them."""
_BAR = 10


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


@dataclass(frozen=True)
class Sights:
    """What a sweep's page draws besides the trials' values."""

    curves: Sequence[tuple[str, Curve]]
    """Of the metric, of the best trials and of some under way."""
    shares: Mapping[str, float]
    """How much each parameter matters; empty: unknown yet."""


def sweep_panel(
    sweep: SweepInfo, trials: Sequence[Trial], shown: Sequence[Trial], sights: Sights, style: ChartStyle
) -> RenderableType:
    """A sweep, its charts, and a table of some trials."""
    under_way = sweep.asked - sweep.told
    head = Text.assemble((sweep.name, "bold"), f"  {sweep.id}  ", cells.state(sweep.state))
    parts: list[RenderableType] = [head]
    if sweep.reason:
        parts.append(Text(sweep.reason))
    count = f"{sweep.told} of {words.count(sweep.trials, 'trial')} ended, {under_way} under way"
    goal = "largest" if sweep.goal == "max" else "smallest"
    parts.append(Text(f"{count}; search {sweep.search} for the {goal} {sweep.metric}", style="dim"))
    if sweep.best is not None:
        parts.append(_best(sweep, sweep.best))
    parts += ["", *value_chart(sweep, trials, style), ""]
    if sights.curves:
        title = f"{sweep.metric} of the best trials and of those under way"
        parts += [*chart(title, sights.curves, "step", style), ""]
    parts += _parameters(sweep, trials, sights.shares, style)
    parts.append(trial_table(sweep, shown))
    if len(shown) < len(trials):
        parts.append(Text(f"{len(shown)} of {words.count(len(trials), 'trial')}; --all shows all", style="dim"))
    return Group(*parts)


def _best(sweep: SweepInfo, best: Trial) -> Text:
    chosen = ", ".join(f"{name} = {parameter(value)}" for name, value in sorted(best.parameters.items()))
    job = "" if best.job is None else f"  {best.job}"
    return Text.assemble("best: ", (f"trial {best.number}, {_value(best.value)}", "bold"), f" with {chosen}{job}")


def _parameters(
    sweep: SweepInfo, trials: Sequence[Trial], shares: Mapping[str, float], style: ChartStyle
) -> list[RenderableType]:
    """All parameters beside the value at once, and then each by itself, the most important first."""
    sign = -1 if sweep.goal == "max" else 1
    valued = [(sign * trial.value, trial.number, trial) for trial in trials if trial.value is not None]
    best_first = [trial for *_, trial in sorted(valued, key=lambda found: found[:2])]
    names = sorted({name for trial in best_first for name in trial.parameters})
    if len(best_first) < 2 or not names:
        return []
    rows = points.ranked([[*(t.parameters.get(name) for name in names), t.value] for t in best_first])
    small = replace(style, height=_SMALL)
    parts: list[RenderableType] = [Text("Parameters and value", style="bold")]
    parts += [*points.parallel([*names, sweep.metric], rows, replace(style, height=_PARALLEL)), ""]
    beside = max(1, (style.width + _GAP) // (_SLICE + _GAP))
    small = replace(small, width=(style.width + _GAP) // beside - _GAP)
    slices = []
    for name in sorted(names, key=lambda name: (-shares.get(name, 0.0), name)):
        at = names.index(name)
        marks = [(row.at[at], row.at[-1], row.rank) for row in rows]
        slices.append(Text("\n").join([_share(name, shares.get(name), small), *points.scatter(marks, small)]))
    title = (
        "Each parameter"
        if shares
        else "Each parameter; from 10 trials with different values on, also how much it matters"
    )
    parts.append(Text(title, style="bold"))
    for start in range(0, len(slices), beside):
        row = Table.grid(padding=(0, _GAP, 0, 0))
        row.add_row(*slices[start : start + beside])
        parts += [row, ""]
    return parts


def _share(name: str, share: float | None, style: ChartStyle) -> Text:
    """A parameter's name, and how much it matters."""
    if share is None:
        return Text(cells.shortened(name, style.width))
    full, empty = ("█", "░") if style.unicode else ("#", "-")
    filled = round(share * _BAR)
    bar = f"{full * filled}{empty * (_BAR - filled)} {share:4.0%}"
    return Text(f"{cells.shortened(name, style.width - len(bar) - 2):<{style.width - len(bar)}}{bar}")


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


def joined(attempts: Sequence[Curve]) -> Curve:
    """One curve over all attempts; where they overlap, the later attempt counts."""
    found: dict[int, list[Any]] = {}
    for curve in sorted(attempts, key=lambda curve: curve.attempt):
        found |= {x: at for x, *at in zip(curve.x, curve.min, curve.max, curve.last, curve.count, strict=True)}
    x = sorted(found)
    low, high, last, count = zip(*(found[at] for at in x), strict=True)
    return replace(attempts[-1], x=x, min=low, max=high, last=last, count=count)
