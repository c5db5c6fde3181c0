"""``tensorboard``."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weft.commands.common import client_of, complete_job
from weft.errors import WeftError
from weft.exits import ExitCode
from weft.exports.tensorboard import NOT_INSTALLED, JobFolder
from weft.ui.console import say

app = typer.Typer()
_PAUSE = 15.0
"""Seconds between two updates from running jobs."""


@app.command("tensorboard")
def tensorboard(
    ctx: typer.Context,
    jobs: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB…",
            help="Ids, beginnings of ids, unique names, or @last. TensorBoard compares several jobs.",
            autocompletion=complete_job,
        ),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port that TensorBoard listens on; 0: a free port.")
    ] = 6006,
    logdir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep the event files in this folder. Default: remove them at the end."),
    ] = None,
    no_start: Annotated[bool, typer.Option("--no-start", help="Only fetch the event files, into --logdir.")] = False,
) -> None:
    """Open TensorBoard with the event files of jobs.

    For a job that has ended, these are the event files in its results. If there are none, or while the job runs, the
    command writes event files from the job's metrics, and adds new points while TensorBoard is open.
    """
    if no_start and logdir is None:
        raise typer.BadParameter("this needs --logdir", param_hint="--no-start")
    if find_spec("tensorboard") is None:
        raise NOT_INSTALLED
    client = client_of(ctx)
    with ExitStack() as stack:
        if logdir is None:
            target = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-tensorboard-")))
        else:
            target = logdir
        folders = [JobFolder(target, client.job(job)) for job in dict.fromkeys(jobs)]
        for folder in folders:
            say(f"{folder.job.id} {escape(folder.job.name)}: {folder.fetch()}")
        if no_start:
            print(target)
            return
        _serve(target, port, folders)


def _serve(target: Path, port: int, folders: list[JobFolder]) -> None:
    """Run TensorBoard until it ends or Ctrl-C stops it. It prints its address itself."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(target), "--port", str(port)]
    process = subprocess.Popen([*command, "--reload_interval", "5"])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that TensorBoard ends with this process
    try:
        while True:
            live = [folder for folder in folders if not folder.is_complete]
            try:
                code = process.wait(_PAUSE if live else None)
            except subprocess.TimeoutExpired:
                _refresh(live)
            else:
                break
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if code:
        raise WeftError(f"TensorBoard ended with exit code {code}")


def _refresh(folders: list[JobFolder]) -> None:
    for folder in folders:
        try:
            folder.fetch()
        except WeftError as error:
            say(f"[yellow]{folder.job.id}: {escape(str(error))}[/]")
