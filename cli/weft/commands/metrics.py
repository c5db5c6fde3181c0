"""``metrics``."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.markup import escape

from weft.commands.common import JobArgument, JsonOption, client_of
from weft.errors import NotFound, Unavailable, WeftError
from weft.exits import ExitCode, exit_code_of_state
from weft.exports.mlflow import log_to_mlflow
from weft.resources.jobs import Job
from weft.resources.metrics import Axis, Series
from weft.ui.console import out, say, show, show_json, show_json_lines
from weft.ui.jobs import outcome
from weft.ui.metrics import chart_names, chart_style, charts, series_table, value
from weft.ui.removed import gone
from weft.words import count, size

app = typer.Typer()
_PAUSE = 2.0
"""Seconds between two requests while following."""


@app.command("metrics")
def metrics(
    ctx: typer.Context,
    job: JobArgument,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these metrics; * and ? are wildcards.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", "-p", help="Draw charts.")] = False,
    system: Annotated[
        bool, typer.Option("--system", "-s", help="Show system metrics: CPU, memory, disk, network and GPUs.")
    ] = False,
    learner: Annotated[
        int | None, typer.Option("--learner", "-l", min=1, help="Only the metrics of this learner, from 1.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", "-a", min=1, help="Only the metrics of this attempt, from 1.")
    ] = None,
    by_time: Annotated[
        bool, typer.Option("--time", "-t", help="With --plot: plot over time instead of steps.")
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="With --plot: use a logarithmic axis for the values.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job has ended.")] = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write all points to a CSV file; - is stdout.")
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write all points to a Parquet file.")
    ] = None,
    mlflow: Annotated[bool, typer.Option("--mlflow", help="Export to MLflow, with a run for each attempt.")] = False,
    tracking_uri: Annotated[
        str | None, typer.Option(metavar="URI", help="With --mlflow: the MLflow server. Default: MLFLOW_TRACKING_URI.")
    ] = None,
    experiment: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --mlflow: the experiment. Default: MLFLOW_EXPERIMENT_NAME, or the job's name."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a job's metrics: newest and best values, charts, exports.

    With --follow, the exit code is the job's outcome.
    """
    if (csv is not None) + (parquet is not None) + mlflow + plot > 1:
        raise typer.BadParameter("choose one of --plot, --csv, --parquet and --mlflow")
    if follow and (csv or parquet or mlflow):
        raise typer.BadParameter(
            "an export contains only the existing points; leave out --follow", param_hint="--follow"
        )
    if (tracking_uri or experiment) and not mlflow:
        raise typer.BadParameter("these options need --mlflow", param_hint="--tracking-uri, --experiment")
    found = client_of(ctx).job(job)
    which = _Which(found, tuple(names or ()), {"kind": "system" if system else "user"})
    which.chosen.update({"learner": learner, "attempt": attempt})
    if csv is not None:
        _write(which, csv, "csv")
    elif parquet is not None:
        _write(which, parquet, "parquet")
    elif mlflow:
        runs = log_to_mlflow(found, _names_of(which.series()), tracking_uri, experiment, **which.chosen)
        for run in runs:
            say(f"[green]✓[/] {count(run.points, 'point')} of attempt {run.attempt} → {escape(run.where)}")
            print(run.id)
    elif follow:
        _follow(which, plot, "time" if by_time else "step", log, as_json)
    elif as_json:
        show_json([dict(series.raw) for series in which.series()])
    else:
        series = which.series()
        show(_charts(which, series, "time" if by_time else "step", log, fit=False) if plot else series_table(series))
        _tell_more(series, plot, which)


@dataclass(frozen=True)
class _Which:
    """The series that the user has selected."""

    job: Job
    patterns: Sequence[str]
    chosen: dict[str, Any] = field(default_factory=dict)

    def series(self, *, empty: bool = False) -> list[Series]:
        """The series.

        Raises:
            NotFound: there are none, and ``empty`` is False.
        """
        there = list(self.job.metrics(**self.chosen))
        fitting = [
            series for series in there if not self.patterns or any(_fits(series, text) for text in self.patterns)
        ]
        if fitting or empty:
            return fitting
        if there:
            names = ", ".join(_names_of(there)[:20])
            raise NotFound("not_found", 404, f"{self.job.id} has no such metric; it has: {names}")
        if told := gone(self.job, "metrics"):
            raise NotFound("not_found", 404, f"{self.job.id} ({self.job.state}): {told}")
        what = "no system metrics" if self.chosen["kind"] == "system" else "no metrics"
        whose = " with this --learner or --attempt" if self.chosen["learner"] or self.chosen["attempt"] else ""
        yet = "" if self.job.is_terminal else " yet"
        raise NotFound("not_found", 404, f"{self.job.id} ({self.job.state}) has {what}{whose}{yet}")


def _fits(series: Series, pattern: str) -> bool:
    return fnmatchcase(series.name, pattern) or (
        series.kind == "system" and fnmatchcase(series.name, f"system/{pattern}")
    )


def _names_of(found: Sequence[Series]) -> list[str]:
    return list(dict.fromkeys(series.name for series in found))


def _write(which: _Which, target: Path, form: Literal["csv", "parquet"]) -> None:
    names = _names_of(which.series()) if which.patterns else []
    if target == Path("-"):
        with tempfile.TemporaryDirectory(prefix="weft-metrics-") as scratch:
            made = which.job.export_metrics(Path(scratch) / "metrics", form, names, **which.chosen)
            with made.open("rb") as file:
                while piece := file.read(1 << 20):
                    sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        return
    if target.is_dir():
        raise WeftError(f"{target} is a folder; name a file")
    which.job.export_metrics(target, form, names, **which.chosen)
    say(f"[green]✓[/] {size(target.stat().st_size)}")
    print(target)


def _charts(which: _Which, series: Sequence[Series], axis: Axis, log: bool, *, fit: bool) -> RenderableType:
    names = chart_names(series)
    style = chart_style(len(names), log=log, fit=fit)
    curves = which.job.curves(names, axis=axis, width=min(2 * style.width, 4000), **which.chosen)
    return charts(names, curves, axis, style)


def _tell_more(series: Sequence[Series], plot: bool, which: _Which) -> None:
    if plot and len(_names_of(series)) > len(chart_names(series)):
        left = _names_of(series)[len(chart_names(series)) :]
        say(f"[dim]and {count(len(left), 'more metric')} that you can name: {escape(', '.join(left[:10]))}[/]")
    for note in which.job.metric_notes():
        say(f"[yellow]{escape(note)}[/]")


def _follow(which: _Which, plot: bool, axis: Axis, log: bool, as_json: bool) -> None:
    try:
        if sys.stdout.isatty() and not as_json:
            state = _redraw(which, plot, axis, log)
        elif plot:
            raise WeftError("--plot --follow needs a terminal")
        else:
            state = _print_news(which, as_json)
    except KeyboardInterrupt:
        say(f"[dim]stopped following; [/]{which.job.id}[dim] continues[/]")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    for row in outcome(which.job.refresh()):
        say(row)
    raise typer.Exit(exit_code_of_state(state))


def _repeat(which: _Which, show_news: Callable[[list[Series]], None]) -> str:
    """Call ``show_news`` regularly until the job has ended, and once more afterwards; returns the job's last state."""
    while True:
        try:
            job = which.job.refresh()  # before the series, so that they are complete if the job has ended
            show_news(which.series(empty=True))
        except Unavailable as error:
            say(f"[yellow]{escape(str(error))}[/]")
        else:
            if job.is_terminal:
                return job.state
        time.sleep(_PAUSE)


def _redraw(which: _Which, plot: bool, axis: Axis, log: bool) -> str:
    with Live(console=out(), auto_refresh=False) as live:

        def show_news(series: list[Series]) -> None:
            if series:
                made = _charts(which, series, axis, log, fit=True) if plot else series_table(series)
                live.update(made, refresh=True)

        return _repeat(which, show_news)


def _print_news(which: _Which, as_json: bool) -> str:
    seen: dict[tuple[int, int, str], int] = {}

    def show_news(found: list[Series]) -> None:
        for series in found:
            key = (series.attempt, series.learner, series.name)
            if seen.get(key) == series.points:
                continue
            seen[key] = series.points
            if as_json:
                show_json_lines([dict(series.raw)])
            else:
                at = series.last_time.astimezone().strftime("%H:%M:%S")
                whose = f"[{series.learner}] " if which.job.learners > 1 else ""
                last = value(series.name, series.last, series.kind)
                print(f"{at}  {whose}step {series.last_step}  {series.name} {last}", flush=True)

    return _repeat(which, show_news)
