"""``bench resnet50``, ``bench show``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from weft import bench
from weft.bench import FRAMEWORKS, Plan, Point
from weft.client import Client
from weft.commands.common import JsonOption, client_of
from weft.commands.engines import complete_engine
from weft.errors import InvalidManifest, WeftError
from weft.exits import ExitCode, exit_code_of_state
from weft.models import Gap, StateChange
from weft.ui import problems, words
from weft.ui.bench import bench_panel, svg
from weft.ui.console import err, say, show, show_json

app = typer.Typer(no_args_is_help=True, help="Measure how fast a training is, and how it scales with its learners.")

Framework = Literal["pytorch", "tensorflow", "keras"]
Launcher = Literal["horovod", "torchrun"]
Precision = Literal["float16", "bfloat16"]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.svg", help="Write the plot here, too.", show_default=False)
]


@app.command("resnet50")
def resnet50(
    ctx: typer.Context,
    learners: Annotated[str, typer.Option("--learners", metavar="N,N,…", help="One job for each.")] = "1,2",
    engine: Annotated[
        str | None,
        typer.Option(help="Where; default: the server's.", autocompletion=complete_engine, show_default=False),
    ] = None,
    framework: Annotated[Framework, typer.Option(help="What trains.")] = "pytorch",
    launcher: Annotated[Launcher, typer.Option(help="torchrun: with pytorch.")] = "horovod",
    gpus: Annotated[int | None, typer.Option(min=0, help="Of each learner; default: 0.", show_default=False)] = None,
    cpus: Annotated[float | None, typer.Option(min=0.1, help="Of each; default: 1.", show_default=False)] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Of each; the defaults take 6Gb on a CPU.")] = "8Gb",
    batch_size: Annotated[int, typer.Option(min=1, help="Of each device.")] = 64,
    image_size: Annotated[int, typer.Option(min=32, metavar="PIXELS", help="Of each image's sides.")] = 224,
    depth: Annotated[int, typer.Option(help="18, 34, 50, 101 or 152 layers.")] = 50,
    width: Annotated[int, typer.Option(min=1, help="Channels of the first layer.")] = 64,
    warmup_batches: Annotated[int, typer.Option(min=0, help="Before anything is measured.")] = 10,
    iterations: Annotated[int, typer.Option(min=1, help="Measurements.")] = 10,
    batches: Annotated[int, typer.Option("--batches-per-iteration", min=1, help="Of each measurement.")] = 10,
    amp: Annotated[Precision | None, typer.Option(help="Mixed precision.", show_default=False)] = None,
    fp16_allreduce: Annotated[bool, typer.Option("--fp16-allreduce", help="Average gradients in 16 bits.")] = False,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train ResNet-50 on synthetic images with 1, 2, 4, … learners.

    One job after another, so that none disturbs the next. Each prints its
    images/sec, as Horovod's synthetic benchmark has them: a warm-up, then
    the mean of the measurements ± 1.96 σ. The efficiency is a device's
    images/sec beside those with the fewest learners.

    The jobs stay, with their labels; `weft bench show` prints them again.
    """
    counts = _counts(learners)
    if (framework, launcher) not in FRAMEWORKS:
        raise typer.BadParameter(f"{launcher} starts PyTorch only, not {framework}", param_hint="--launcher")
    _writable(plot)
    arguments = {
        "batch-size": batch_size,
        "image-size": image_size,
        "depth": depth,
        "width": width,
        "warmup-batches": warmup_batches,
        "iterations": iterations,
        "batches-per-iteration": batches,
        "amp": amp,
        "fp16-allreduce": fp16_allreduce,
    }
    plan = Plan(framework, launcher, engine, gpus, cpus, memory, arguments)
    client = client_of(ctx)
    _check(client, plan, counts)
    points = []
    for count in counts:
        point = _measure(client, plan, count)
        points.append(point)
        _say_outcome(point)
    _finish(points, plot, as_json)
    say(f"[dim]again:[/] [command]weft bench show {plan.run}[/]")
    failed = [point.job.state for point in points if not point.measured]
    if failed:
        raise typer.Exit(exit_code_of_state(failed[0]) or ExitCode.ERROR)


@app.command("show")
def show_again(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="The label bench-run; default: the newest.", show_default=False),
    ] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a benchmark again, from the logs of its jobs."""
    _writable(plot)
    _finish(bench.find(client_of(ctx), run), plot, as_json)


def _counts(text: str) -> list[int]:
    try:
        counts = sorted({int(one) for one in text.split(",")})
    except ValueError:
        counts = []
    if not counts or counts[0] < 1:
        raise typer.BadParameter(f"{text!r} is not a list of numbers from 1 on, such as 1,2,4", param_hint="--learners")
    return counts


def _writable(plot: Path | None) -> None:
    """Before minutes of measuring, not after them."""
    if plot is not None and not plot.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {plot.absolute().parent}", param_hint="--plot")


def _check(client: Client, plan: Plan, counts: list[int]) -> None:
    """All jobs' manifests before the first is submitted."""
    for count in counts:
        try:
            client.validate(plan.manifest(count))
        except InvalidManifest as error:
            which = f"the benchmark's job with {words.count(count, 'learner')}"
            problems.explain(which, "", error.problems, error.detail)
            raise typer.Exit(ExitCode.INVALID) from None


def _measure(client: Client, plan: Plan, count: int) -> Point:
    """One job, to its end."""
    job = bench.submit(client, plan, count)
    with _status(f"{words.count(count, 'learner')}: {job.id} queued") as update:
        try:
            for item in job.follow_logs(learner=1):
                if isinstance(item, Gap):
                    continue
                told = f"{item.state} {item.reason}" if isinstance(item, StateChange) else item.text
                update(f"{words.count(count, 'learner')}: {told}")
        except KeyboardInterrupt:
            say(f"\n{job.id} goes on; nothing more is submitted. [command]weft halt {job.id}[/] stops it")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    return bench.read(job.wait(check=False))


def _say_outcome(point: Point) -> None:
    name = words.count(point.learners, "learner")
    if point.measured:
        say(f"{name}: {point.measured.images_per_second:.1f} ± {point.measured.plus_minus:.1f} images/sec")
    else:
        reason = words.first_line(point.job.reason) or "no measurement in its log"
        say(f"{name}: {words.styled_state(point.job.state)} {escape(reason)}")


def _finish(points: list[Point], plot: Path | None, as_json: bool) -> None:
    if as_json:
        show_json(bench.as_json(points))
    else:
        show(bench_panel(points))
    if plot is None:
        return
    if not any(point.measured for point in points):
        say("nothing was measured, so there is no plot")
        return
    job = points[0].job
    try:
        plot.write_text(svg(points, f"ResNet-50, {job.framework.name} {job.framework.version}, engine {job.engine}"))
    except OSError as error:
        raise WeftError(f"{plot} can't be written: {error.strerror}") from error
    say(f"[green]✓[/] {escape(str(plot))}")


@contextmanager
def _status(text: str) -> Iterator[Callable[[str], None]]:
    """A spinner with what happens now; only in a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with err().status(escape(text)) as status:
        yield lambda text: status.update(escape(words.shortened(text, max(err().width - 4, 10))))
