"""``bench resnet50``, ``bench show``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from weft import bench, words
from weft.bench import FRAMEWORKS, BenchJob, Plan
from weft.client import Client
from weft.commands.common import JsonOption, client_of
from weft.commands.engines import complete_engine
from weft.errors import InvalidManifest, WeftError
from weft.exits import ExitCode, exit_code_of_state
from weft.models import Gap, StateChange
from weft.ui import cells, problems
from weft.ui.bench import bench_panel, svg
from weft.ui.console import err, say, show, show_json

app = typer.Typer(
    no_args_is_help=True, help="Measure the speed of a training, and how it scales with the number of learners."
)

Framework = Literal["pytorch", "tensorflow", "keras"]
Launcher = Literal["horovod", "torchrun"]
Precision = Literal["float16", "bfloat16"]
PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE.svg", help="Also write the plot to this file.", show_default=False),
]


@app.command("resnet50")
def resnet50(
    ctx: typer.Context,
    learners: Annotated[
        str, typer.Option("--learners", metavar="N,N,…", help="Numbers of learners; one job for each.")
    ] = "1,2",
    engine: Annotated[
        str | None,
        typer.Option(
            help="Engine that runs the jobs. Default: the server's default.",
            autocompletion=complete_engine,
            show_default=False,
        ),
    ] = None,
    framework: Annotated[Framework, typer.Option(help="Framework of the training.")] = "pytorch",
    launcher: Annotated[Launcher, typer.Option(help="torchrun works only with pytorch.")] = "horovod",
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs per learner. Default: 0.", show_default=False)] = None,
    cpus: Annotated[
        float | None, typer.Option(min=0.1, help="CPUs per learner. Default: 1.", show_default=False)
    ] = None,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory per learner; the defaults need 6Gb on a CPU.")
    ] = "8Gb",
    batch_size: Annotated[int, typer.Option(min=1, help="Batch size per device.")] = 64,
    image_size: Annotated[int, typer.Option(min=32, metavar="PIXELS", help="Height and width of the images.")] = 224,
    depth: Annotated[int, typer.Option(help="Number of layers: 18, 34, 50, 101 or 152.")] = 50,
    width: Annotated[int, typer.Option(min=1, help="Channels of the first layer.")] = 64,
    warmup_batches: Annotated[int, typer.Option(min=0, help="Batches before the first measurement.")] = 10,
    iterations: Annotated[int, typer.Option(min=1, help="Number of measurements.")] = 10,
    batches: Annotated[int, typer.Option("--batches-per-iteration", min=1, help="Batches per measurement.")] = 10,
    amp: Annotated[Precision | None, typer.Option(help="Mixed precision.", show_default=False)] = None,
    fp16_allreduce: Annotated[bool, typer.Option("--fp16-allreduce", help="Average gradients in 16 bits.")] = False,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train ResNet-50 on synthetic images with 1, 2, 4, … learners.

    The jobs run one after another, so that none slows down the next. The
    command prints the images/sec of each job, as Horovod's synthetic
    benchmark does: after a warm-up, the mean of the measurements ± 1.96 σ.
    The efficiency is the images/sec of a device, relative to the job with
    the fewest learners.

    The jobs keep their labels; `weft bench show` prints the results again.
    """
    counts = _counts(learners)
    if (framework, launcher) not in FRAMEWORKS:
        raise typer.BadParameter(f"{launcher} starts only PyTorch, not {framework}", param_hint="--launcher")
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
    say(f"[dim]to print this again:[/] [command]weft bench show {plan.run}[/]")
    failed = [point.job.state for point in points if not point.measured]
    if failed:
        raise typer.Exit(exit_code_of_state(failed[0]) or ExitCode.ERROR)


@app.command("show")
def show_again(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="The label bench-run of the benchmark. Default: the newest benchmark.",
            show_default=False,
        ),
    ] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a benchmark again, from the logs of its jobs."""
    _writable(plot)
    _finish(bench.find(client_of(ctx), run), plot, as_json)


def _counts(text: str) -> list[int]:
    try:
        counts = sorted({int(number) for number in text.split(",")})
    except ValueError:
        counts = []
    if not counts or counts[0] < 1:
        raise typer.BadParameter(f"{text!r} is not a list of positive numbers, such as 1,2,4", param_hint="--learners")
    return counts


def _writable(plot: Path | None) -> None:
    """Check the folder of the plot before the measurements, which take minutes."""
    if plot is not None and not plot.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {plot.absolute().parent}", param_hint="--plot")


def _check(client: Client, plan: Plan, counts: list[int]) -> None:
    """Check the manifests of all jobs before the first job is submitted."""
    for count in counts:
        try:
            client.validate(plan.manifest(count))
        except InvalidManifest as error:
            which = f"the benchmark job with {words.count(count, 'learner')}"
            problems.explain(which, "", error.problems, error.detail)
            raise typer.Exit(ExitCode.INVALID) from None


def _measure(client: Client, plan: Plan, count: int) -> BenchJob:
    """Run one job, and wait for its end."""
    job = bench.submit(client, plan, count)
    with _status(f"{words.count(count, 'learner')}: {job.id} queued") as update:
        try:
            for item in job.follow_logs(learner=1):
                if isinstance(item, Gap):
                    continue
                news = f"{item.state} {item.reason}" if isinstance(item, StateChange) else item.text
                update(f"{words.count(count, 'learner')}: {news}")
        except KeyboardInterrupt:
            say(f"\n{job.id} continues; no further job is submitted. [command]weft halt {job.id}[/] stops it")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    return bench.read(job.wait(check=False))


def _say_outcome(point: BenchJob) -> None:
    name = words.count(point.learners, "learner")
    if point.measured:
        say(f"{name}: {point.measured.images_per_second:.1f} ± {point.measured.plus_minus:.1f} images/sec")
    else:
        reason = cells.first_line(point.job.reason) or "its log has no measurement"
        say(f"{name}: {cells.styled_state(point.job.state)} {escape(reason)}")


def _finish(points: list[BenchJob], plot: Path | None, as_json: bool) -> None:
    if as_json:
        show_json(bench.as_json(points))
    else:
        show(bench_panel(points))
    if plot is None:
        return
    if not any(point.measured for point in points):
        say("there are no measurements to plot")
        return
    job = points[0].job
    try:
        plot.write_text(svg(points, f"ResNet-50, {job.framework.name} {job.framework.version}, engine {job.engine}"))
    except OSError as error:
        raise WeftError(f"{plot} can't be written: {error.strerror}") from error
    say(f"[green]✓[/] {escape(str(plot))}")


@contextmanager
def _status(text: str) -> Iterator[Callable[[str], None]]:
    """A spinner with the current step; only in a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with err().status(escape(text)) as status:
        yield lambda text: status.update(escape(cells.shortened(text, max(err().width - 4, 10))))
